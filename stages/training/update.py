"""One update of the weights."""

from functools import reduce

import torch
from torch import Tensor

from stages.methods.method import Method, OwnsStep, Update


def make_update(method: Method, update: Update) -> Tensor:
    """One update, the method's own way if it has one; returns its loss, a scalar, the mean a token, in nats."""
    return method.step(update) if isinstance(method, OwnsStep) else plain_step(update)


def plain_step(update: Update) -> Tensor:
    """Gradients of the mean loss of the forward batches, then the optimizer's step."""
    losses = []
    for batch in update.batches():
        loss = update.loss(batch)
        loss = loss if update.accumulate == 1 else loss / update.accumulate
        update.backward(loss)
        losses.append(loss.detach().double())
    update.change_weights()
    return reduce(torch.add, losses)
