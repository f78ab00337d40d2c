"""Sources `local` and `long`, and their union: the latest positions of the stream before the one
that reads.

Shapes: n positions that follow each other, m positions before them, d width of keys, w entries a
position.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn.functional import pad

from stages.memory.entries import Entries, Matches

Similarity = Literal["dot", "scaled-dot", "l2"]

ALIGNED = 16
"""Number of keys in the product is padded to a multiple of this, which is up to a third faster."""


@dataclass(frozen=True)
class Recent:
    """n consecutive positions of a stream, and the m positions before them.

    `keys` float [m + n, d]: g(c_j) of the m positions before, then of the n positions, whose keys
    are also the queries. `tokens` int [m + n]: the token that followed each key; for the n
    positions these are the targets.
    `first` int [n]: index of the earliest key that each position may read.
    `similarity`: `dot` q·k, `scaled-dot` q·k/sqrt(d), `l2` -‖q-k‖².
    `width`: maximum number of entries for a position: the largest cut-off, or the longest window.
    `window` int [n]: index of the start of each position's window, which is read whatever the
    cut-off (in a union with `local`); None: not a union.
    """

    keys: Float[Tensor, "positions d"]
    tokens: Integer[Tensor, " positions"]
    first: Integer[Tensor, " n"]
    similarity: Similarity
    width: int
    window: Integer[Tensor, " n"] | None = None

    @property
    def before(self) -> int:
        """m, the number of positions before those that read."""
        return len(self.keys) - len(self.first)

    @property
    def columns(self) -> int:
        """Entries for each position, w: `width`, or the number of keys if that is smaller."""
        return min(self.width, len(self.keys))

    @property
    def reach(self) -> Tensor:
        """Number of entries that each position can read, int [n]."""
        earliest = self.first if self.window is None else torch.minimum(self.first, self.window)
        return self._query_keys - earliest

    @property
    def min_entries(self) -> Tensor | None:
        """Number of entries that each position reads whatever the cut-off, int [n]; None: 0."""
        return None if self.window is None else self._query_keys - self.window

    @property
    def _query_keys(self) -> Tensor:
        """Index of each position's own key, which is its query."""
        return torch.arange(self.before, len(self.keys), device=self.keys.device)


def recent_entries(at: Recent) -> Entries:
    """Entries [n, w], the nearest first: entry c of position i is key m+i-1-c.

    A position reads neither itself nor its future, and nothing before min(first, window). One
    matrix product computes all scores. Those of position i are consecutive in row i, and begin one
    column earlier in each row. So a strided view selects them without a copy.

    Source: Grave et al. 2017 (neural cache, arXiv:1612.04426), equations 2-3; local memory: Zhong
    et al. 2022 (TRIME, arXiv:2205.12674), section 3.2.

    Keys 1, 2 and 3 of width 1 are followed by tokens 7, 8 and 7. The last position reads the two
    others:

    >>> at = Recent(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([7, 8, 7]), torch.tensor([0]), "dot", width=2)
    >>> entries = recent_entries(at)
    >>> entries.scores, entries.values
    (tensor([[6., 3.]]), tensor([[8, 7]]))
    """
    positions = len(at.first)
    width = at.columns

    # At least one column of padding: the last row may be read one column past the last key.
    padding = ALIGNED - len(at.keys) % ALIGNED
    latest_first = pad(at.keys.float().flip(0), (0, 0, 0, padding))
    queries = at.keys[at.before :].float()
    product = _similarities(queries, latest_first, at.similarity)  # [n, m + n + padding]

    # Row i begins at column n - i, which is one step less than a row further on in memory.
    strides = (product.shape[1] - 1, 1)
    scores = product.as_strided((positions, width), strides, storage_offset=positions)

    # `unfold` makes overlapping views: the gather below is the only copy.
    tokens_latest_first = pad(at.tokens.flip(0), (0, width), value=-1)
    windows = tokens_latest_first.unfold(0, width, 1)
    window_of_position = torch.arange(positions, 0, -1, device=windows.device)
    values = windows.index_select(0, window_of_position)

    # Columns that a position may not read hold a key before its stream, or a part of the next row.
    reach = at.reach[:, None]
    if (reach < width).any():
        missing = torch.arange(width, device=scores.device) >= reach
        scores = scores.masked_fill(missing, -torch.inf)
        values = values.masked_fill(missing, -1)
    return Entries(scores, values, at.min_entries)


def recent_matches(at: Recent) -> Matches:
    """Matches [h] of `recent_entries` with the tokens of the n positions, as `find_matches` gives
    them.

    Positions are sorted by token. Those before a position in its group are the earlier occurrences
    of its target. So the work depends on the number of matches, not of entries.

    The example of `recent_entries`, in which the second entry holds the target 7:

    >>> at = Recent(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([7, 8, 7]), torch.tensor([0]), "dot", width=2)
    >>> recent_matches(at)
    Matches(rows=tensor([0]), columns=tensor([1]))
    """
    # Ranks in the order of tokens [m + n], and the rank at which each token's group begins.
    order = at.tokens.argsort(stable=True)
    ascending = torch.arange(len(order), device=order.device)
    ranks = torch.empty_like(order).scatter_(0, order, ascending)
    _, group_sizes = at.tokens[order].unique_consecutive(return_counts=True)
    starts = group_sizes.cumsum(0) - group_sizes
    group_starts = starts.repeat_interleave(group_sizes)

    # Each of the n positions has one match for each earlier member of its group.
    query_ranks = ranks[at.before :]
    counts = query_ranks - group_starts[query_ranks]
    positions = torch.arange(len(counts), device=counts.device)
    rows = positions.repeat_interleave(counts)  # [h]

    # The matches of a row are numbered from 0, the nearest first: one rank back, two, and so on.
    matches_before = counts.cumsum(0) - counts
    numbers = torch.arange(len(rows), device=counts.device) - matches_before[rows]
    keys = order[query_ranks[rows] - 1 - numbers]

    # Column 0 is the key just before the position.
    columns = at.before + rows - 1 - keys
    max_columns = at.reach.clamp(max=at.columns)
    readable = columns < max_columns[rows]
    return Matches(rows[readable], columns[readable])


def _similarities(
    queries: Float[Tensor, "n d"], keys: Float[Tensor, "N d"], similarity: Similarity
) -> Float[Tensor, "n N"]:
    """Scores of every query with every key, float32 [n, N], contiguous."""
    if similarity == "dot":
        return queries @ keys.T
    if similarity == "scaled-dot":
        return (queries / math.sqrt(keys.shape[1])) @ keys.T

    # -‖q-k‖² = 2 q·k - ‖q‖² - ‖k‖², by a matrix product. Distances do not depend on the origin: at
    # the mean of the queries the squares are small, and cost the difference fewer digits.
    mean = queries.mean(0)
    queries = queries - mean
    keys = keys - mean
    query_squares = queries.square().sum(-1, keepdim=True)
    key_squares = keys.square().sum(-1)
    distances = torch.addmm(key_squares, queries, keys.T, alpha=-2).add_(query_squares)
    # Rounding may make the square of a small distance negative.
    return distances.clamp_(min=0).neg_()
