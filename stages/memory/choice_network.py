"""A distribution over how a context is read: by the model alone, or with its nearest 1, 2, 4, … neighbours.

With x the features of a context and k_1 < … < k_C the numbers of neighbours,

    (w_0, …, w_C) = softmax(c + U tanh(W x + b))        p(y) = w_0 p_lm(y) + Σ_i w_i p_mem(y | nearest k_i)

Shapes: n positions, F features, H hidden units, C numbers of neighbours; all in float64.

Source: Zheng et al. 2021 (Adaptive Nearest Neighbor Machine Translation, arXiv:2105.13022), equations 5 and 6. Their
network has ReLU; here as in `small_network` it has tanh, and begins at the best numbers for all contexts.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from stages.memory.small_network import Observed, SmallNetwork, fitted

ELSEWHERE = 0.05
"""Probability that a network begins with for all numbers but the best for all contexts, together."""


@dataclass(frozen=True)
class ChoicePositions(Observed):
    """Features of n positions, log p of their targets by the model, and by the memory of each number of neighbours."""

    log_p: Float[Tensor, " n"]
    log_p_mem: Float[Tensor, "n c"]

    def read(self, logits: Float[Tensor, "n c1"]) -> Float[Tensor, " n"]:
        """log p of the targets with the weights softmax(logits)."""
        return mixed(self.log_p, self.log_p_mem.T, logits)


def mixed(log_p: Tensor, log_p_mem: Tensor, logits: Tensor) -> Tensor:
    """log of w_0 p_lm + Σ_i w_i p_mem_i; log_p [n, …], log_p_mem [C, n, …], logits [n, 1 + C].

    A model of probability 1/2, one neighbour that holds the token and of two one; a third of the weight each:

    >>> half, one = torch.tensor([0.5]).log(), torch.tensor([1.0]).log()
    >>> mixed(half, torch.stack((one, half)), torch.zeros(1, 3)).exp()  # (1/2 + 1 + 1/2) / 3
    tensor([0.6667])
    """
    weights = logits.log_softmax(-1).T.to(log_p)
    weights = weights.reshape(*weights.shape, *(1,) * (log_p.dim() - 1))
    return torch.logsumexp(torch.cat((log_p[None], log_p_mem)) + weights, 0)


class ChoiceNetwork(SmallNetwork):
    """Its outputs [n, 1 + C] are logits of w."""

    logits = SmallNetwork.outputs


def beginning(weight: float, best: int, numbers: int) -> Float[Tensor, " c1"]:
    """Logits of λ for the best number of neighbours and 1 − λ for none, and little for the others.

    λ = 0.4 for the first of two numbers, and 0.05 / 3 for each choice besides:

    >>> beginning(weight=0.4, best=0, numbers=2).exp()
    tensor([0.5867, 0.3967, 0.0167], dtype=torch.float64)
    """
    # None begins at 0, which has no logit.
    shares = torch.full((1 + numbers,), ELSEWHERE / (1 + numbers), dtype=torch.float64)
    shares[0] += (1 - ELSEWHERE) * (1 - weight)
    shares[1 + best] += (1 - ELSEWHERE) * weight
    return shares.log()


def fit_choice(positions: ChoicePositions, offset: Tensor, seed: int = 0) -> ChoiceNetwork:
    """Fit a network to the likelihood of the targets; the same arguments give the same network."""

    def loss(rows: Tensor, outputs: Tensor) -> Tensor:
        return -positions.taken(rows).read(outputs).mean()

    return fitted(ChoiceNetwork.constant(positions.inputs, offset, seed), positions.inputs, loss, seed)
