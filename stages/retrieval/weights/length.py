"""A weight of exact matches that depends on their length, their number, and whether they agree."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from stages.memory.length_weights import LengthWeights
from stages.memory.weight_network import Positions
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.per_context import PerContext

COMPARED = 16
"""The most matches of a context whose tokens are compared with each other."""


@dataclass(frozen=True)
class ByLength(PerContext):
    """Weights of `LengthWeights`. They are read only if they gain on text that they were not fitted on."""

    def inputs(self, block: ScoredRange, rows: Tensor | slice, retrieved: Retrieved) -> Float[Tensor, "n f"]:
        """Length of the longest match, number of matches of that length, and the share of their most frequent token."""
        cutoff = self.best.points[-1].cutoff
        scores = torch.cat([part.scores_read(cutoff) for part in retrieved.parts], -1)
        values = torch.cat([part.entries.values for part in retrieved.parts], -1)
        return match_features(scores, values)

    def fit(self, positions: Positions, weight: float) -> LengthWeights:
        return LengthWeights.fitted(positions, weight)

    def restore(self, record: Mapping[str, Any]) -> LengthWeights:
        return LengthWeights.of_record(record)

    def scratch_bytes(self, tokens: int) -> int:
        return super().scratch_bytes(tokens) + 4 * tokens * (3 + 2)


def match_features(scores: Float[Tensor, "n k"], values: Tensor) -> Float[Tensor, "n 3"]:
    """Length, number and agreement of the longest matches; 0 where there is none.

    Args:
        scores: length of each match in tokens, -inf where one is missing.
        values: int [n, k], the token that followed each match.

    >>> match_features(torch.tensor([[2.0, 3.0, 3.0]]), torch.tensor([[7, 8, 9]])).tolist()
    [[3.0, 2.0, 0.5]]
    """
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    longest = scores[:, :1].clamp(min=0)
    number = (scores == scores[:, :1]).sum(-1, keepdim=True) * (longest > 0)
    values = values.gather(1, order)[:, :COMPARED]
    found = (scores == scores[:, :1])[:, :COMPARED] & (longest > 0)
    alike = (values[:, :, None] == values[:, None, :]) & found[:, None, :] & found[:, :, None]
    agreement = alike.sum(-1).amax(-1, keepdim=True) / found.sum(-1, keepdim=True).clamp(min=1)
    return torch.cat((longest, number.to(longest), agreement.to(longest)), -1).double()
