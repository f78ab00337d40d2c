"""A weight of exact matches for each length, number and agreement of matches: a table, fitted by likelihood.

    max Σ_t log((1 − λ_b) p_lm(x_t) + λ_b p_mem(x_t)) + P (λ_0 log λ_b + (1 − λ_0) log(1 − λ_b))

over the positions t of each bin b, where λ_0 is the best weight for all and P is a number of positions that speak for
it. The slope in λ_b falls everywhere, so its zero is found by halving. Shapes: n positions, B bins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from stages.memory.weight_network import Positions

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 24, 32, 64)
COUNTS = (1, 2, 4, 16)
AGREEMENTS = (0.5, 0.75, 1.0)
"""Lower edges of bins: tokens of the longest match, how often it was found, share of its most frequent token."""
PRIOR = 10.0
HALVINGS = 30


def bins(inputs: Float[Tensor, "n 3"]) -> Int64[Tensor, " n"]:
    """The bin of each position, from length, count and agreement.

    >>> bins(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [99.0, 20.0, 1.0]])).tolist()
    [0, 27, 279]
    """
    place = torch.zeros(len(inputs), dtype=torch.int64)
    for column, edges in enumerate((LENGTHS, COUNTS, AGREEMENTS)):
        own = torch.bucketize(
            inputs[:, column].double().contiguous(), torch.tensor(edges, dtype=torch.float64), right=True
        )
        place = place * (len(edges) + 1) + own
    return place


@dataclass(frozen=True)
class LengthWeights:
    """λ of each bin, float64 [B]."""

    weights: Tensor

    @classmethod
    def fitted(cls, positions: Positions, weight: float) -> Self:
        """The weights that give positions the highest likelihood, near one weight for all where there are few."""
        size = (len(LENGTHS) + 1) * (len(COUNTS) + 1) * (len(AGREEMENTS) + 1)
        bin_, ratio = bins(positions.inputs), (positions.log_p_mem - positions.log_p).double().exp()
        low, high = (torch.full((size,), edge, dtype=torch.float64) for edge in (0.0, 1.0))
        for _ in range(HALVINGS):
            tried = (low + high) / 2
            # A token that the model gives nothing has an infinite ratio: its slope is then the limit, 1 / λ.
            slopes = torch.where(ratio.isinf(), 1 / tried[bin_], (ratio - 1) / (1 + tried[bin_] * (ratio - 1)))
            slope = torch.zeros_like(tried).index_add_(0, bin_, slopes)
            slope += PRIOR * (weight / tried - (1 - weight) / (1 - tried))
            low, high = torch.where(slope > 0, tried, low), torch.where(slope > 0, high, tried)
        return cls((low + high) / 2)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        numbers: Sequence[float] = record["weights"]
        return cls(torch.tensor(numbers, dtype=torch.float64))

    @property
    def record(self) -> Mapping[str, Any]:
        """Its numbers, JSON, with the edges of its bins."""
        return {"lengths": LENGTHS, "counts": COUNTS, "agreements": AGREEMENTS, "weights": self.weights.tolist()}

    def logits(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, " n"]:
        """Logits of λ, float64 on the CPU."""
        return self.weights[bins(inputs.cpu())].logit(eps=1e-6)
