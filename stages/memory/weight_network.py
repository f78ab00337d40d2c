"""A weight of the memory for each context, from a small network, or from a table for exact matches.

A network gives

    λ(x) = σ(logit λ_0 + u · tanh(W x + b))

where λ_0 is the best single weight for all contexts, at which fitting begins. Fitting maximizes the
likelihood

    max Σ_t log((1 − λ(x_t)) p_lm(x_t) + λ(x_t) p_mem(x_t))

Shapes: n positions, F inputs.

Sources: He, Neubig and Berg-Kirkpatrick 2021 (Efficient Nearest Neighbor Language Models,
arXiv:2109.04212), adaptive retrieval: a larger network predicts λ from the model's confidence and
counts of the context, fitted on validation text. Zheng et al. 2021 (Adaptive Nearest Neighbor
Machine Translation, arXiv:2105.13022): inputs from the retrieved neighbours, namely their distances
and the number of distinct tokens among them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from stages.memory.small_network import Observations, SmallNetwork, fit_network

MAX_LOGIT = 12.0
"""Bound on the absolute value of the logit: beyond it, 1 − λ has no digits left in float32."""
FOLDS = 5
SHORTEST = 1000
"""Minimum number of positions in a fold."""
SIGNIFICANT = 3.0
"""Standard errors by which the held-out gain must exceed 0."""


class ContextWeights(Protocol):
    """Interface of weights for contexts, fitted to positions."""

    @property
    def record(self) -> Mapping[str, Any]:
        """Its parameters as JSON, with all digits."""

    def logits(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, " n"]:
        """Logits of λ, float64 on the CPU."""


class WeightNetwork(SmallNetwork):
    """A network whose outputs are logits of λ; `offset` is logit λ_0."""

    def logits(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, " n"]:
        return self.outputs(inputs).clamp(-MAX_LOGIT, MAX_LOGIT)


@dataclass(frozen=True)
class WeightPositions(Observations):
    """Features of n positions, and log p of their targets by the model and by the memory (−inf:
    absent).
    """

    log_p: Float[Tensor, " n"]
    log_p_mem: Float[Tensor, " n"]

    def read_with(self, weight: float) -> Tensor:
        """log p of the targets, [n], with the same weight for all positions."""
        return self.read(torch.tensor(weight, dtype=torch.float64).logit().expand(len(self)))

    def read(self, logits: Tensor) -> Tensor:
        """log p of the targets, [n], with the weights σ(logits)."""
        # log(1 − λ) and log λ from the logit: σ itself would round to 0 or 1.
        log_p = F.logsigmoid(-logits) + self.log_p
        log_p_mem = F.logsigmoid(logits) + self.log_p_mem
        return torch.logaddexp(log_p, log_p_mem)


def fit_weight(positions: WeightPositions, weight: float, seed: int = 0) -> WeightNetwork:
    """Fit a network, starting from one weight for all contexts; deterministic for a seed."""

    def loss(rows: Tensor, outputs: Tensor) -> Tensor:
        # The same bound as in `WeightNetwork.logits`, so that the fitted and the evaluated function
        # are the same.
        logits = outputs.clamp(-MAX_LOGIT, MAX_LOGIT)
        return -positions.select(rows).read(logits).mean()

    logit = math.log(weight / (1 - weight))
    network = WeightNetwork.constant(positions.inputs, logit, seed)
    return fit_network(network, positions.inputs, loss, seed)


Fit = Callable[[Any, float], Any]
"""Fits weights that have a method `logits` to positions, starting from one weight for all."""


class FittedWeights(NamedTuple):
    """Weights fitted on all positions, and their held-out gain in each fold, in nats per token."""

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
        """Whether the gain is large enough to expect that the weights help on other text too."""
        return self.mean > SIGNIFICANT * self.error


def learn(
    positions: Observations,
    weight: float,
    log_p_one_weight: Float[Tensor, " n"],
    fit: Fit = fit_weight,
) -> FittedWeights | None:
    """Fit weights, and measure by cross-validation what they gain over the best single weight.

    The positions are cut into consecutive runs. Each run is evaluated with weights fitted on the
    others. The result is None if there are too few positions.

    Args:
        weight: weight at which fitting begins.
        log_p_one_weight: log p of the targets with the best single weight. It was chosen on all
        runs, which favours it.
    """
    folds = torch.arange(len(positions)).tensor_split(FOLDS)
    if min(map(len, folds)) < SHORTEST:
        return None

    gains = list[float]()
    for fold in folds:
        in_training = torch.ones(len(positions), dtype=torch.bool)
        in_training[fold] = False
        weights = fit(positions.select(in_training), weight)
        held_out = positions.select(fold)
        log_p = held_out.read(weights.logits(held_out.inputs))
        gains.append(float((log_p - log_p_one_weight[fold]).mean()))
    return FittedWeights(fit(positions, weight), gains)


LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 24, 32, 64)
COUNTS = (1, 2, 4, 16)
AGREEMENTS = (0.5, 0.75, 1.0)
EDGES = (LENGTHS, COUNTS, AGREEMENTS)
"""Lower edges of bins: length of the longest match, its count, and the share of its most frequent
next token.
"""
BINS = math.prod(len(edges) + 1 for edges in EDGES)
"""Number of bins: edges cut a column into one part more."""
PRIOR = 10.0
"""P, the number of positions that the prior counts for in each bin."""
HALVINGS = 30
"""Steps of bisection: λ is known to 2^-31."""


def bins(inputs: Float[Tensor, "n 3"]) -> Int64[Tensor, " n"]:
    """The bin of each position, from length, count and agreement.

    >>> bins(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [99.0, 20.0, 1.0]])).tolist()
    [0, 27, 279]
    """
    # Digits of a number whose base differs by column: edges cut a column into one part more.
    result = torch.zeros(len(inputs), dtype=torch.int64)
    for column, edges in enumerate(EDGES):
        values = inputs[:, column].double().contiguous()
        boundaries = torch.tensor(edges, dtype=torch.float64)
        # A value at an edge belongs to the bin above it.
        digit = torch.bucketize(values, boundaries, right=True)
        result = result * (len(edges) + 1) + digit
    return result


@dataclass(frozen=True)
class LengthWeights:
    """A table of weights of exact matches by length, count and agreement of matches, fitted by
    likelihood.

        max Σ_t log((1 − λ_b) p_lm(x_t) + λ_b p_mem(x_t)) + P (λ_0 log λ_b + (1 − λ_0) log(1 − λ_b))

    over the positions t of each bin b. λ_0 is the best single weight, and P the number of positions
    that its prior counts for. The derivative in λ_b is decreasing, so bisection finds its zero.
    `weights`: λ of each bin, float64 [B].
    """

    weights: Tensor

    @classmethod
    def fit(cls, positions: WeightPositions, weight: float) -> Self:
        """Fit the weights by bisection; bins with few positions stay near `weight`."""
        index = bins(positions.inputs)  # [n]
        # p_mem / p_lm of each target, less 1.
        ratio = (positions.log_p_mem - positions.log_p).double().exp()
        excess = ratio - 1

        low = torch.zeros(BINS, dtype=torch.float64)
        high = torch.ones(BINS, dtype=torch.float64)
        for _ in range(HALVINGS):
            middle = (low + high) / 2

            # The derivative of log((1 − λ) + λ ratio). If the model gives a token no probability,
            # its ratio is infinite; the limit is 1 / λ.
            weight_at = middle[index]
            finite_slopes = excess / (1 + weight_at * excess)
            slopes = torch.where(ratio.isinf(), 1 / weight_at, finite_slopes)
            slope = torch.zeros_like(middle).index_add_(0, index, slopes)
            slope += PRIOR * (weight / middle - (1 - weight) / (1 - middle))

            # The slope falls with λ, so its zero lies above where it is positive.
            rises = slope > 0
            low = torch.where(rises, middle, low)
            high = torch.where(rises, high, middle)
        return cls((low + high) / 2)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        numbers: Sequence[float] = record["weights"]
        return cls(torch.tensor(numbers, dtype=torch.float64))

    @property
    def record(self) -> Mapping[str, Any]:
        """Its weights as JSON, with the edges of its bins."""
        return {
            "lengths": LENGTHS,
            "counts": COUNTS,
            "agreements": AGREEMENTS,
            "weights": self.weights.tolist(),
        }

    def logits(self, inputs: Float[Tensor, "n f"]) -> Float[Tensor, " n"]:
        """Logits of λ, float64 on the CPU."""
        return self.weights[bins(inputs.cpu())].logit(eps=1e-6)
