"""Policy `length`: a weight for each context from the lengths of its matches."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from stages.memory.weight_network import LengthWeights, WeightPositions
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.per_context import PerContext

COMPARED = 16
"""Maximum number of matches of a context whose tokens are compared."""


@dataclass(frozen=True)
class ByLength(PerContext):
    """Weights of `LengthWeights`. They are used only if they gain on held-out text."""

    fitted: ClassVar[type[Any]] = LengthWeights
    features: ClassVar[int] = 3

    def inputs(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Retrieved
    ) -> Float[Tensor, "n f"]:
        """Length of the longest match, number of matches of that length, and the share of their
        most frequent token.
        """
        return match_features(*retrieved.scored(self.best[-1].cutoff))

    def fit(self, positions: WeightPositions, weight: float) -> LengthWeights:
        return LengthWeights.fit(positions, weight)


def match_features(scores: Float[Tensor, "n k"], values: Tensor) -> Float[Tensor, "n 3"]:
    """Length, number and agreement of the longest matches; 0 if there is none.

    Args:
        scores: length of each match in tokens, -inf if one is missing.
        values: int [n, k], the token that followed each match.

    >>> match_features(torch.tensor([[2.0, 3.0, 3.0]]), torch.tensor([[7, 8, 9]])).tolist()
    [[3.0, 2.0, 0.5]]
    """
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    best = scores[:, :1]
    # Missing matches have −inf, so a context without any has the length 0.
    longest = best.clamp(min=0)
    is_longest = (scores == best) & (longest > 0)
    number = is_longest.sum(-1, keepdim=True)

    # Pairs of tokens are compared, so only the first few matches are, m = COMPARED at most.
    tokens = values.gather(1, order)[:, :COMPARED]  # [n, m]
    is_compared = is_longest[:, :COMPARED]
    is_pair = is_compared[:, None, :] & is_compared[:, :, None]  # [n, m, m]
    is_same_token = tokens[:, :, None] == tokens[:, None, :]
    count_of_token = (is_same_token & is_pair).sum(-1)

    max_count = count_of_token.amax(-1, keepdim=True)
    num_compared = is_compared.sum(-1, keepdim=True).clamp(min=1)
    agreement = max_count / num_compared

    features = (longest, number.to(longest), agreement.to(longest))
    return torch.cat(features, -1).double()
