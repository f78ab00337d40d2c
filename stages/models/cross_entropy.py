"""Linear layer and cross-entropy in one: the [tokens, vocabulary] scores never exist whole."""

from typing import Any

import torch
from torch import Tensor

BLOCK_SCORES = {"cpu": 1 << 23, "cuda": 1 << 27}
"""Scores of a block (4 bytes each); two such blocks are held. Smaller ones make the products slower."""


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
    size = max(16, BLOCK_SCORES.get(weight.device.type, 1 << 23) // len(weight))
    return [slice(i, min(i + size, tokens)) for i in range(0, tokens, size)]


def _block(hidden: Tensor, weight: Tensor, targets: Tensor, room: Tensor) -> tuple[Tensor, Tensor]:
    """A block's loss and the gradient of its scores, softmax - one_hot [n, V], in room [2, n, V].

    The normalizer follows from the largest probability: that is 1/V at least, while the target's may underflow.
    """
    scores, probs = room
    torch.mm(hidden, weight.T, out=scores)
    torch.softmax(scores, -1, out=probs)
    log_z = scores.amax(-1) - probs.amax(-1).log()
    loss = (log_z - scores.gather(1, targets[:, None]).squeeze(1)).sum()
    probs[torch.arange(len(targets), device=targets.device), targets] -= 1
    return loss, probs


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        needs_hidden, needs_weight, _ = ctx.needs_input_grad
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        loss = hidden.new_zeros(())
        blocks = _blocks(len(targets), weight)
        room = hidden.new_empty(2, blocks[0].stop if blocks else 0, len(weight))
        for rows in blocks:
            room_here = room[:, : rows.stop - rows.start]
            block_loss, grad_scores = _block(hidden[rows], weight, targets[rows], room_here)
            loss += block_loss
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
