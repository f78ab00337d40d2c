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
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from stages.memory.small_network import SmallNetwork, fitted

MOST = 12.0
"""Bound on the logit, up or down: beyond it, 1 − λ has no digits left in float32."""
FOLDS = 5
SHORTEST = 1000
"""Positions of a fold."""
SURE = 3.0
"""Standard errors that the gain on text it was not fitted on must lie above 0."""


class WeightNetwork(SmallNetwork):
    """Its outputs are logits of λ; `offset` is logit λ_0."""

    def logits(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, " n"]:
        return self.outputs(inputs).clamp(-MOST, MOST)

    def weights(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, " n"]:
        """λ of each position, above 0 and below 1, float64 on the CPU."""
        return self.logits(inputs).sigmoid()


@dataclass(frozen=True)
class Positions:
    """Features of n positions, and log p of their targets by the model and by the memory (−inf: absent)."""

    inputs: Float[Tensor, "n f"]
    log_p: Float[Tensor, " n"]
    log_p_mem: Float[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.log_p)

    def taken(self, rows: Tensor) -> "Positions":
        return Positions(self.inputs[rows], self.log_p[rows], self.log_p_mem[rows])

    @classmethod
    def joined(cls, parts: "Sequence[Positions]") -> "Positions":
        """Positions one after the other."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def read_with(self, weight: float) -> Tensor:
        """log p of the targets, [n], with one weight for all."""
        return self.read(torch.tensor(weight, dtype=torch.float64).logit().expand(len(self)))

    def read(self, logits: Tensor) -> Tensor:
        """log p of the targets, [n], with the weights σ(logits)."""
        return torch.logaddexp(F.logsigmoid(-logits) + self.log_p, F.logsigmoid(logits) + self.log_p_mem)


def fit_weight(positions: Positions, weight: float, seed: int = 0) -> WeightNetwork:
    """Fit a network that begins at one weight for all; the same arguments give the same network."""

    def loss(rows: Tensor, outputs: Tensor) -> Tensor:
        return -positions.taken(rows).read(outputs.clamp(-MOST, MOST)).mean()

    begun = WeightNetwork.constant(positions.inputs, math.log(weight / (1 - weight)), seed)
    return fitted(begun, positions.inputs, loss, seed)


class Learned(NamedTuple):
    """A network fitted on all positions, and what it gained where it was not: nats a token, one number a fold."""

    network: WeightNetwork
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
    def sure(self) -> bool:
        """Whether it may be trusted on other text to be no worse than one weight for all."""
        return self.mean > SURE * self.error


def learn(positions: Positions, weight: float, one_for_all: Float[Tensor, " n"]) -> Learned | None:
    """Fit a network, and look what networks fitted alike gain over the best that there is without.

    The positions are cut into runs that follow each other; each is read with a network fitted on the others. None where
    there are too few positions to cut.

    Args:
        weight: where fitting begins.
        one_for_all: log p of the targets read with one weight. It was chosen on all runs, to its advantage.
    """
    runs = torch.arange(len(positions)).tensor_split(FOLDS)
    if min(map(len, runs)) < SHORTEST:
        return None
    return Learned(fit_weight(positions, weight), [_gain(positions, run, weight, one_for_all) for run in runs])


def _gain(positions: Positions, run: Tensor, weight: float, one_for_all: Tensor) -> float:
    """Nats a token that a network gains on a run, fitted on all else."""
    others = torch.ones(len(positions), dtype=torch.bool)
    others[run] = False
    network, held_out = fit_weight(positions.taken(others), weight), positions.taken(run)
    return float((held_out.read(network.logits(held_out.inputs)) - one_for_all[run]).mean())
