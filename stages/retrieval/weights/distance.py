"""Policy `distance`: a weight for each context from the distance to its nearest entry."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from jaxtyping import Float
from torch import Tensor

from stages.memory.weight_network import WeightPositions
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.per_context import PerContext

MAX_WEIGHT = 0.99
"""The largest λ: the formula gives 1 at distance 0, which would leave other tokens no probability.
"""
REACHES = tuple(2 ** (eighth / 8) for eighth in range(-32, 49))
"""Distances tried for λ to reach 0, as multiples of the median distance."""


@dataclass(frozen=True)
class DistanceWeights:
    """λ = max(0, 1 − d / reach), where d is the squared distance to the nearest entry.

    >>> import torch
    >>> DistanceWeights(4.0).logits(torch.tensor([[0.0], [1.0], [5.0]])).sigmoid().tolist()
    [0.99, 0.75, 0.0]
    """

    reach: float

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(**record)

    @property
    def record(self) -> Mapping[str, Any]:
        return asdict(self)

    def logits(self, inputs: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
        """Logits of λ, float64 on the CPU; −inf beyond reach."""
        distances = inputs[:, 0].double().cpu()
        weights = (1 - distances / self.reach).clamp(0, MAX_WEIGHT)
        return weights.logit()


class ByDistance(PerContext):
    """Weights of `DistanceWeights`; the reach is the one of `REACHES` with the highest likelihood.

    They are used only if they gain on held-out text.

    Source: Dai et al. 2023 (Simple and Scalable Nearest Neighbor Machine Translation,
    arXiv:2302.12188), section 3.
    """

    fitted: ClassVar[type[Any]] = DistanceWeights
    features: ClassVar[int] = 1

    def inputs(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Retrieved
    ) -> Float[Tensor, "n 1"]:
        """The squared distance to the nearest entry, float64; inf where there is none."""
        scores, _ = retrieved.scored(self.best[-1].cutoff)
        return -scores.amax(-1, keepdim=True).double()

    def fit(self, positions: WeightPositions, weight: float) -> DistanceWeights:
        distances = positions.inputs[:, 0]
        # All distances may be 0.
        unit = float(distances.median()) or 1.0
        candidates = [DistanceWeights(reach * unit) for reach in REACHES]

        def log_likelihood(weights: DistanceWeights) -> float:
            logits = weights.logits(positions.inputs)
            return float(positions.read(logits).sum())

        return max(candidates, key=log_likelihood)
