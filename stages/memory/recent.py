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
        return self._own - earliest

    @property
    def least(self) -> Tensor | None:
        """Number of entries that each position reads whatever the cut-off, int [n]; None: 0."""
        return None if self.window is None else self._own - self.window

    @property
    def _own(self) -> Tensor:
        """Index of each position's own key."""
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
    n = len(at.first)
    latest_first = pad(at.keys.float().flip(0), (0, 0, 0, ALIGNED - len(at.keys) % ALIGNED))
    product = _similarities(at.keys[at.before :].float(), latest_first, at.similarity)
    scores = product.as_strided((n, at.columns), (product.shape[1] - 1, 1), n)
    # `unfold` makes overlapping views: the gather below is the only copy.
    runs = pad(at.tokens.flip(0), (0, at.columns), value=-1).unfold(0, at.columns, 1)
    values = runs.index_select(0, torch.arange(n, 0, -1, device=runs.device))
    reach = at.reach[:, None]
    if (reach < at.columns).any():
        missing = torch.arange(at.columns, device=scores.device) >= reach
        scores, values = scores.masked_fill(missing, -torch.inf), values.masked_fill(missing, -1)
    return Entries(scores, values, at.least)


def recent_matches(at: Recent) -> Matches:
    """Matches [h] of `recent_entries` with the tokens of the n positions, as `find_matches` gives
    them.

    Positions are sorted by token. Those before a position in its group are the earlier occurrences
    of its target. So the work depends on the number of matches, not of entries.

    The example of `recent_entries`, in which the second entry holds the target 7:

    >>> at = Recent(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([7, 8, 7]), torch.tensor([0]), "dot", width=2)
    >>> recent_matches(at)
    Matches(rows=tensor([0]), places=tensor([1]))
    """
    order = at.tokens.argsort(stable=True)
    ranked = torch.empty_like(order).scatter_(
        0, order, torch.arange(len(order), device=order.device)
    )
    groups = at.tokens[order].unique_consecutive(return_counts=True)[1]
    starts = (groups.cumsum(0) - groups).repeat_interleave(groups)
    own = ranked[at.before :]
    counts = own - starts[own]
    rows = torch.arange(len(counts), device=own.device).repeat_interleave(counts)
    back = torch.arange(len(rows), device=own.device) - (counts.cumsum(0) - counts)[rows]
    places = at.before + rows - 1 - order[own[rows] - 1 - back]
    readable = places < at.reach.clamp(max=at.columns)[rows]
    return Matches(rows[readable], places[readable])


def _similarities(
    queries: Float[Tensor, "n d"], keys: Float[Tensor, "N d"], similarity: Similarity
) -> Float[Tensor, "n N"]:
    """Scores of every query with every key, float32 [n, N], contiguous."""
    if similarity == "dot":
        return queries @ keys.T
    if similarity == "scaled-dot":
        return (queries / math.sqrt(keys.shape[1])) @ keys.T
    # -‖q-k‖² by a matrix product; the mean of the queries is subtracted first, because it would
    # cost digits.
    middle = queries.mean(0)
    queries, keys = queries - middle, keys - middle
    # Rounding may make the square of a small distance negative, hence the clamp.
    squares = queries.square().sum(-1, keepdim=True), keys.square().sum(-1)
    return torch.addmm(squares[1], queries, keys.T, alpha=-2).add_(squares[0]).clamp_(min=0).neg_()
