"""Linear layer and cross-entropy in one: the [tokens, vocabulary] scores never exist whole."""

from typing import Any

import torch
from torch import Tensor

BLOCK_SCORES = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Scores held at a time (4 bytes each): a block stays near the CPU's caches, or fills a GPU."""


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Sum over tokens of -log softmax(hidden @ weight.T)[target], in nats.

    Works through blocks of tokens and makes the gradients in the forward pass, while a block's
    scores are at hand; memory is one block, whatever the number of tokens.

    Args:
        hidden: [N, d].
        weight: [V, d], of the same dtype.
        targets: int64 [N], in 0 … V-1.
    Returns: scalar of hidden's dtype; 0 for N = 0.
    """
    loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, targets)  # type: ignore[no-untyped-call]
    return loss


def linear_log_prob(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and the log-normalizer, both [N], in nats; no gradients.

    Args: as in `linear_cross_entropy`.
    """
    log_prob = hidden.new_empty(len(targets))
    log_z = hidden.new_empty(len(targets))
    for rows in _blocks(len(targets), weight):
        scores = hidden[rows] @ weight.T
        log_z[rows] = scores.logsumexp(-1)
        log_prob[rows] = scores.gather(1, targets[rows, None]).squeeze(1) - log_z[rows]
    return log_prob, log_z


def _blocks(tokens: int, weight: Tensor) -> list[slice]:
    size = max(16, BLOCK_SCORES.get(weight.device.type, 1 << 22) // len(weight))
    return [slice(i, min(i + size, tokens)) for i in range(0, tokens, size)]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        needs_hidden, needs_weight, _ = ctx.needs_input_grad
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        loss = hidden.new_zeros(())
        for rows in _blocks(len(targets), weight):
            scores = hidden[rows] @ weight.T
            log_probs = scores.log_softmax(-1)
            loss -= log_probs.gather(1, targets[rows, None]).sum()
            if grad_hidden is None and grad_weight is None:
                continue
            grad_scores = log_probs.exp_()
            grad_scores[torch.arange(len(grad_scores), device=hidden.device), targets[rows]] -= 1
            if grad_hidden is not None:
                torch.mm(grad_scores, weight, out=grad_hidden[rows])
            if grad_weight is not None:
                grad_weight.addmm_(grad_scores.T, hidden[rows])
        ctx.save_for_backward(grad_hidden, grad_weight)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return (
            None if grad_hidden is None else grad_hidden * grad_loss,
            None if grad_weight is None else grad_weight * grad_loss,
            None,
        )
