"""A distribution over ways to read a context: with the model alone, or with its nearest 1, 2, 4, …
neighbours.

With x the features of a context and k_1 < … < k_C the numbers of neighbours,

    (w_0, …, w_C) = softmax(c + U tanh(W x + b))        p(y) = w_0 p_lm(y) + Σ_i w_i p_mem(y | nearest k_i)

Shapes: n positions, F features, H hidden units, C numbers of neighbours; all in float64.

Source: Zheng et al. 2021 (Adaptive Nearest Neighbor Machine Translation, arXiv:2105.13022),
equations 5 and 6. Their network has ReLU. This one has tanh, as in `small_network`, and starts from
the best choice for all contexts.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from stages.memory.small_network import Observations, SmallNetwork, fit_network

ELSEWHERE = 0.05
"""Initial probability that is spread evenly over all choices."""


@dataclass(frozen=True)
class ChoicePositions(Observations):
    """Features of n positions, and log p of their targets: by the model, and by each number of
    neighbours.
    """

    log_p: Float[Tensor, " n"]
    log_p_mem: Float[Tensor, "n c"]

    def read(self, logits: Float[Tensor, "n c1"]) -> Float[Tensor, " n"]:
        """log p of the targets with the weights softmax(logits)."""
        return mix(self.log_p, self.log_p_mem.T, logits)


def mix(log_p: Tensor, log_p_mem: Tensor, logits: Tensor) -> Tensor:
    """log of w_0 p_lm + Σ_i w_i p_mem_i; log_p [n, …], log_p_mem [C, n, …], logits [n, 1 + C].

    The model gives 1/2, the nearest neighbour 1 and the nearest two 1/2. Each has a third of the
    weight:

    >>> model = torch.tensor([0.5]).log()
    >>> neighbors = torch.tensor([[1.0], [0.5]]).log()
    >>> mix(model, neighbors, torch.zeros(1, 3)).exp()  # (1/2 + 1 + 1/2) / 3
    tensor([0.6667])
    """
    weights = logits.log_softmax(-1).T.to(log_p)
    # A dimension of 1 for each of log_p behind the positions, so that weights broadcast.
    trailing = [1] * (log_p.dim() - 1)
    weights = weights.reshape(*weights.shape, *trailing)
    log_probs = torch.cat((log_p[None], log_p_mem))
    return torch.logsumexp(log_probs + weights, 0)


class ChoiceNetwork(SmallNetwork):
    """A network whose outputs [n, 1 + C] are logits of w."""

    logits = SmallNetwork.outputs


def initial_logits(weight: float, best: int, numbers: int) -> Float[Tensor, " c1"]:
    """Initial logits: nearly λ for the best number of neighbours, nearly 1 − λ for none, and little
    for the others.

    λ = 0.4 for the first of two numbers; 0.05 is spread over the three choices:

    >>> initial_logits(weight=0.4, best=0, numbers=2).exp()
    tensor([0.5867, 0.3967, 0.0167], dtype=torch.float64)
    """
    # No choice starts at probability 0, which has no logit.
    shares = torch.full((1 + numbers,), ELSEWHERE / (1 + numbers), dtype=torch.float64)
    shares[0] += (1 - ELSEWHERE) * (1 - weight)
    shares[1 + best] += (1 - ELSEWHERE) * weight
    return shares.log()


def fit_choice(positions: ChoicePositions, offset: Tensor, seed: int = 0) -> ChoiceNetwork:
    """Fit a network by maximum likelihood of the targets; deterministic for a seed."""

    def loss(rows: Tensor, outputs: Tensor) -> Tensor:
        return -positions.select(rows).read(outputs).mean()

    network = ChoiceNetwork.constant(positions.inputs, offset, seed)
    return fit_network(network, positions.inputs, loss, seed)
