"""Policy `learned`: weights by a small network from the model's confidence, the previous token, and
the neighbours; and which tokens are worth a search.

Shapes: n positions, k entries, best first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn.functional import pad

from stages.memory.predicted_gain import PredictedGain
from stages.memory.weight_network import WeightNetwork, WeightPositions, fit_weight
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.sources.source import Needs
from stages.retrieval.weights.per_context import WEIGH, PerContext
from stages.retrieval.weights.policy import ReadResult, Record

ENTRIES = 64
"""Number of best entries used for features."""
POSITIONS = 512
"""Positions processed together: each pair of their entries is compared."""
RANKS = (2, 4, 8, 16, 32, ENTRIES)
FARTHEST = 20.0
"""Nats below the best beyond which an entry counts as missing."""
CONTEXT = ("log of the largest probability", "entropy", "log of 1 + count of the token before")
"""Features that are known before a memory is searched, all from the model's own distribution but
the count in the datastore."""
NEIGHBORS = (
    "score of the best",
    *(f"log of 1 + distance of entry {rank} from the best" for rank in RANKS),
    *(f"log of the number of tokens among the best {rank}" for rank in RANKS),
    "log of the memory's largest probability",
    "entropy of the memory",
)
SHARES = tuple(tenth / 10 for tenth in range(1, 10))
"""Shares of searched tokens at which perplexity is reported."""


@dataclass(frozen=True)
class ByNetwork(PerContext):
    """A weight for each context by a network; for a lone memory also the cost of fewer searches.

    If the reading searches for a share of the tokens, the others are left to the model alone.

    Source: He, Neubig and Berg-Kirkpatrick 2021 (Efficient Nearest Neighbor Language Models,
    arXiv:2109.04212), adaptive retrieval; see `stages.memory.weight_network`.
    """

    needs: ClassVar[Needs] = Needs(context=True)
    fitted: ClassVar[type[Any]] = WeightNetwork
    features: ClassVar[int] = len(CONTEXT) + len(NEIGHBORS)

    def inputs(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Retrieved
    ) -> Float[Tensor, "n f"]:
        """The inputs of `CONTEXT` and `NEIGHBORS`; those of neighbours are 0 if there are none."""
        assert block.context is not None, "a pass that learns weights knows the contexts"
        point = self.best[-1]
        read = neighbor_inputs(*retrieved.scored(point.cutoff, point.scale))
        return torch.cat((block.context[rows], read), -1).double()

    def fit(self, positions: WeightPositions, weight: float) -> WeightNetwork:
        return fit_weight(positions, weight)

    # Searches

    @cached_property
    def gains(self) -> PredictedGain | None:
        """Expected gains of searches; None if they are not reported, or not known yet."""
        record = self.choices.get(WEIGH.name, {}).get("gate")
        return None if record is None else PredictedGain.of_record(record)

    @property
    def searches_where(self) -> PredictedGain | None:
        return self.gains if self.row.searched < 1 else None

    def search_gains(self, positions: WeightPositions, log_p: Float[Tensor, " n"]) -> Record | None:
        if len(self.row.sources) > 1:
            return None
        searched = self.row.searched
        shares = [share for share in SHARES if share < searched]
        # The last share is the one at which the reading searches.
        if searched < 1:
            shares.append(searched)
        contexts = positions.inputs[:, : len(CONTEXT)]
        gains = PredictedGain.fit(contexts, log_p - positions.log_p, shares)
        return {**gains.record, "searched": searched}

    def read(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> ReadResult:
        reads = super().read(block, rows, retrieved)
        if self.gains is None:
            return reads
        assert block.context is not None
        by_gain = self.gains.sums(block.context[rows], reads.log_p, block.lm.log_p[rows])
        return reads._replace(sums={**reads.sums, "by_gain": by_gain.cpu().numpy()})

    def no_sums(self) -> Mapping[str, np.ndarray]:
        none = super().no_sums()
        if self.gains is None:
            return none
        return {**none, "by_gain": np.zeros((len(self.gains.shares), 2))}


def neighbor_inputs(
    scores: Float[Tensor, "n k"], values: Integer[Tensor, "n k"]
) -> Float[Tensor, "n f"]:
    """The inputs of `NEIGHBORS`; scores s/τ in any order, −inf where missing."""
    parts = zip(scores.split(POSITIONS), values.split(POSITIONS), strict=True)
    return torch.cat([_neighbor_inputs(*part) for part in parts])


def _neighbor_inputs(scores: Tensor, values: Tensor) -> Tensor:
    """`neighbor_inputs` of a few positions: float [n, f]."""
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    scores = scores[:, :ENTRIES]
    values = values.gather(1, order[:, :ENTRIES])
    # The network reads the same number of entries at every position, K = ENTRIES.
    num_missing = ENTRIES - scores.shape[1]
    scores = pad(scores, (0, num_missing), value=-torch.inf)  # [n, K]
    values = pad(values, (0, num_missing), value=-1)

    is_present = ~scores.isneginf()
    best = scores[:, :1]
    # For the network a missing entry must be finite, and farther than any real one.
    distances = torch.where(is_present, best - scores, FARTHEST).clamp(max=FARTHEST)
    # Whether entry i holds the token of entry j, [n, K, K].
    is_same_token = values[:, :, None] == values[:, None, :]
    is_alike = is_same_token & is_present[:, None, :]

    ranks = torch.tensor(RANKS, device=scores.device) - 1
    distances_at_ranks = distances[:, ranks]
    tokens_at_ranks = _distinct(is_alike, is_present)[:, ranks]
    weights = (-distances).exp() * is_present
    log_max, entropy = _confidence(weights, is_alike)
    inputs = (best, distances_at_ranks.log1p(), tokens_at_ranks.log(), log_max, entropy)
    # A position without entries has only zeros.
    return torch.where(is_present[:, :1], torch.cat(inputs, -1), 0.0)


def _distinct(alike: Bool[Tensor, "n k k"], present: Bool[Tensor, "n k"]) -> Tensor:
    """Numbers of distinct tokens among the first 1 to k entries, [n, k]."""
    # An entry counts if none before it, below the diagonal, holds its token.
    is_repeated = alike.tril(-1).any(-1)
    is_first = present & ~is_repeated
    return is_first.cumsum(-1)


def _confidence(
    weights: Float[Tensor, "n k"], alike: Bool[Tensor, "n k k"]
) -> tuple[Tensor, Tensor]:
    """log of the largest probability of a token, and entropy in nats, both [n, 1], of a memory of
    these entries.
    """
    shares = weights / weights.sum(-1, keepdim=True)  # [n, k]
    # The probability of the token that each entry holds, [n, k].
    token_shares = (alike * shares[:, None, :]).sum(-1)
    log_max = token_shares.amax(-1, keepdim=True).log()

    # The log of each token, weighted by its entries; a missing entry has share 0, whose log must be
    # finite.
    tiny = torch.finfo(token_shares.dtype).tiny
    log_shares = token_shares.clamp(min=tiny).log()
    entropy = -(shares * log_shares).sum(-1, keepdim=True)
    return log_max, entropy
