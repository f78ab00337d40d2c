"""A weight of the memory for each context, by a small network, or by a table for exact matches.

A network gives

    λ(x) = σ(logit λ_0 + u · tanh(W x + b))

where λ_0 is the best weight for all contexts, at which fitting begins. Fitted is

    max Σ_t log((1 − λ(x_t)) p_lm(x_t) + λ(x_t) p_mem(x_t))

Shapes: n positions, F inputs.

Sources: He, Neubig and Berg-Kirkpatrick 2021 (Efficient Nearest Neighbor Language Models, arXiv:2109.04212), adaptive
retrieval: a larger network predicts λ from the model's confidence and counts of the context, fitted on validation text.
Zheng et al. 2021 (Adaptive Nearest Neighbor Machine Translation, arXiv:2105.13022): inputs from the neighbours found,
their distances and the number of distinct tokens among them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from stages.memory.small_network import Observed, SmallNetwork, fitted

MAX_LOGIT = 12.0
"""Bound on the logit, up or down: beyond it, 1 − λ has no digits left in float32."""
FOLDS = 5
SHORTEST = 1000
"""Positions of a fold."""
SIGNIFICANT = 3.0
"""Standard errors that the gain on text it was not fitted on must lie above 0."""


class ContextWeights(Protocol):
    """A weight for each context, fitted to positions."""

    @property
    def record(self) -> Mapping[str, Any]:
        """Its numbers, JSON: all digits."""

    def logits(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, " n"]:
        """Logits of λ, float64 on the CPU."""


class WeightNetwork(SmallNetwork):
    """Its outputs are logits of λ; `offset` is logit λ_0."""

    def logits(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, " n"]:
        return self.outputs(inputs).clamp(-MAX_LOGIT, MAX_LOGIT)


@dataclass(frozen=True)
class Positions(Observed):
    """Features of n positions, and log p of their targets by the model and by the memory (−inf: absent)."""

    log_p: Float[Tensor, " n"]
    log_p_mem: Float[Tensor, " n"]

    def read_with(self, weight: float) -> Tensor:
        """log p of the targets, [n], with one weight for all."""
        return self.read(torch.tensor(weight, dtype=torch.float64).logit().expand(len(self)))

    def read(self, logits: Tensor) -> Tensor:
        """log p of the targets, [n], with the weights σ(logits)."""
        return torch.logaddexp(F.logsigmoid(-logits) + self.log_p, F.logsigmoid(logits) + self.log_p_mem)


def fit_weight(positions: Positions, weight: float, seed: int = 0) -> WeightNetwork:
    """Fit a network that begins at one weight for all; the same arguments give the same network."""

    def loss(rows: Tensor, outputs: Tensor) -> Tensor:
        # With the bound that reading has: else what is fitted would not be what is read.
        return -positions.taken(rows).read(outputs.clamp(-MAX_LOGIT, MAX_LOGIT)).mean()

    begun = WeightNetwork.constant(positions.inputs, math.log(weight / (1 - weight)), seed)
    return fitted(begun, positions.inputs, loss, seed)


Fit = Callable[[Any, float], Any]
"""Fits weights, with `logits` of inputs, to positions, from one number for all on."""


class Learned(NamedTuple):
    """Weights fitted on all positions, and what they gained where they were not: nats a token, one number a fold."""

    network: Any
    gains: Sequence[float]

    @property
    def mean(self) -> float:
        return sum(self.gains) / len(self.gains)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        squares = sum((gain - self.mean) ** 2 for gain in self.gains)
        return math.sqrt(squares / (len(self.gains) - 1) / len(self.gains))

    @property
    def significant(self) -> bool:
        """Whether it may be trusted on other text to be no worse than one weight for all."""
        return self.mean > SIGNIFICANT * self.error


def learn(
    positions: Observed, weight: float, one_for_all: Float[Tensor, " n"], fit: Fit = fit_weight
) -> Learned | None:
    """Fit weights, and measure what weights fitted alike gain over the best that there is without.

    The positions are cut into runs that follow each other; each is read with weights fitted on the others. None where
    there are too few positions to cut.

    Args:
        weight: where fitting begins.
        one_for_all: log p of the targets read with one weight. It was chosen on all runs, to its advantage.
    """
    runs = torch.arange(len(positions)).tensor_split(FOLDS)
    if min(map(len, runs)) < SHORTEST:
        return None
    gains = []
    for run in runs:
        others = torch.ones(len(positions), dtype=torch.bool)
        others[run] = False
        weights, held_out = fit(positions.taken(others), weight), positions.taken(run)
        gains.append(float((held_out.read(weights.logits(held_out.inputs)) - one_for_all[run]).mean()))
    return Learned(fit(positions, weight), gains)


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
    """A weight of exact matches for each length, number and agreement of matches: a table, fitted by likelihood.

        max Σ_t log((1 − λ_b) p_lm(x_t) + λ_b p_mem(x_t)) + P (λ_0 log λ_b + (1 − λ_0) log(1 − λ_b))

    over the positions t of each bin b, where λ_0 is the best weight for all and P is a number of positions that speak
    for it. The slope in λ_b falls everywhere, so its zero is found by halving. `weights`: λ of each bin, float64 [B].
    """

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
