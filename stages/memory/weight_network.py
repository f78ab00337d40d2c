"""A weight of the memory for each context: a small network in place of one number for all.

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
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float
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
