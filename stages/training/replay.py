"""Memory replay back-propagation: gradients through many segments, with the activations of one.

Back-propagation through time keeps the activations of all T segments of an update. Here a first pass without gradient
leaves what is carried into each of them. Then each is computed anew, the last first, and its backward pass gets the
gradient of what it handed on: d loss / d M_{t-1} = d loss_t / d M_{t-1} + (d M_t / d M_{t-1})^T d loss / d M_t. The
gradients are those of back-propagation through time; each segment costs a second pass over what writes its memory.

Source: Wu et al. 2022 (Memformer, arXiv:2010.06891), algorithm 1.
"""

from functools import reduce
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from stages.examples.examples import Batch
from stages.methods.method import Carried, Update
from stages.models.backbone import each
from stages.models.devices import random_state, set_random_state


class Replayable(Update, Protocol):
    """An update whose batches can be computed apart from each other."""

    before: Carried
    """State before the latest batch of `batches`."""
    carried: Carried
    """State after the latest."""

    def advance(self, batch: Batch) -> None:
        """Carry on behind a batch, without gradient."""

    def loss_from(self, batch: Batch, before: Carried) -> tuple[Tensor, Carried]:
        """The loss of a batch that goes on from `before`, and the state after it."""


class Timestep(NamedTuple):
    """A segment of each stream, as the first pass came to it."""

    batch: Batch
    before: Carried
    seed: int
    """Seed of its random numbers: what the first pass drops is dropped again."""


def replay_step(update: Replayable) -> Tensor:
    """As `plain_step` where the graph of what is carried is kept; returns the loss, a scalar."""
    steps, seeds = [], torch.randint(1 << 62, (update.accumulate,)).tolist()
    after_draw = random_state()
    for number, (batch, seed) in enumerate(zip(update.batches(), seeds, strict=True), 1):
        steps.append(Timestep(batch, update.before.each(Tensor.detach), seed))
        if number < update.accumulate:  # what the last one leaves is seen when it is replayed
            torch.manual_seed(seed)
            update.advance(batch)
    losses, gradients, carried = list[Tensor](), dict[str, Tensor](), Carried()
    for number, step in reversed([*enumerate(steps)]):
        torch.manual_seed(step.seed)
        # The method's own tensors have no gradient, and nobody asks for that of the first segment.
        before = step.before._replace(state=each(step.before.state, _leaf)) if number else step.before
        loss, after = update.loss_from(step.batch, before)
        loss = update.weighted(loss)  # segments are of one length, so each weighs the same
        losses.insert(0, loss.detach().double())
        if number + 1 == len(steps):
            carried = after.each(Tensor.detach)
        left = after.tensors()
        # The gradient of <left, gradient> with respect to `left` is `gradient`: one pass for both ways that lead here.
        handed_on = [(left[name] * gradient).sum() for name, gradient in gradients.items()]
        update.backward(reduce(torch.add, [loss, *handed_on]))
        gradients = {name: leaf.grad for name, leaf in before.tensors().items() if leaf.grad is not None}
    set_random_state(after_draw)
    update.carried = carried
    update.change_weights()
    return reduce(torch.add, losses)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
