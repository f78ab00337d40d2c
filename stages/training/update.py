"""One update of the weights."""

from functools import reduce

import torch
from torch import Tensor

from stages.methods.method import Method, OwnsStep, Update


def make_update(method: Method, update: Update) -> Tensor:
    """One update, the method's own way if it has one; returns its loss, a scalar, the mean a token, in nats."""
    return method.step(update) if isinstance(method, OwnsStep) else plain_step(update)


def plain_step(update: Update) -> Tensor:
    """Gradients of the mean loss of the forward batches, then the optimizer's step.

    Where the graph of what is carried is kept, the losses have one backward pass, in the last batch: back-propagation
    through time over the segments of an update.
    """
    losses, pending = [], []
    for number, batch in enumerate(update.batches(), 1):
        loss = update.loss(batch)
        pending.append(loss if update.accumulate == 1 else loss / update.accumulate)
        losses.append(pending[-1].detach().double())
        if number == update.accumulate or not update.keeps_graph:
            update.backward(reduce(torch.add, pending))
            pending.clear()
    update.change_weights()
    return reduce(torch.add, losses)
