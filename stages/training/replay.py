"""Memory replay back-propagation: gradients through many segments, with the activations of one.

Back-propagation through time keeps the activations of all T segments of an update. Here a first
pass without gradient records the state carried into each segment. Then each is recomputed, the last
first, and its backward pass receives the gradient of the state that it passed on: d loss / d
M_{t-1} = d loss_t / d M_{t-1} + (d M_t / d M_{t-1})^T d loss / d M_t. The gradients are those of
back-propagation through time; each segment costs a second pass over the layers that write its
memory.

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
    """An update whose batches can be computed separately."""

    before: Carried
    """State before the latest batch of `batches`."""
    carried: Carried
    """State after the latest."""

    def advance(self, batch: Batch) -> None:
        """Advance the state past a batch, without gradient."""

    def loss_from(self, batch: Batch, before: Carried) -> tuple[Tensor, Carried]:
        """The loss of a batch from the state `before`, and the state after it."""


class Timestep(NamedTuple):
    """A segment of each stream, with the state at which the first pass reached it."""

    batch: Batch
    before: Carried
    seed: int
    """Seed of its random numbers, so that dropout is the same in both passes."""


def replay_step(update: Replayable) -> Tensor:
    """Same result as `plain_step` with the graph of carried state kept; returns the loss, a scalar."""
    steps, seeds = [], torch.randint(1 << 62, (update.accumulate,)).tolist()
    after_draw = random_state()
    for number, (batch, seed) in enumerate(zip(update.batches(), seeds, strict=True), 1):
        steps.append(Timestep(batch, update.before.each(Tensor.detach), seed))
        if (
            number < update.accumulate
        ):  # the state after the last one is computed when it is replayed
            torch.manual_seed(seed)
            update.advance(batch)
    losses, gradients, carried = list[Tensor](), dict[str, Tensor](), Carried()
    for number, step in reversed([*enumerate(steps)]):
        torch.manual_seed(step.seed)
        # The method's own tensors have no gradient, and the first segment's is not needed.
        before = (
            step.before._replace(state=each(step.before.state, _leaf)) if number else step.before
        )
        loss, after = update.loss_from(step.batch, before)
        loss = update.weighted(loss)  # segments have the same length, so their weights are equal
        losses.insert(0, loss.detach().double())
        if number + 1 == len(steps):
            carried = after.each(Tensor.detach)
        left = after.tensors()
        # The gradient of <left, gradient> with respect to `left` is `gradient`: one pass covers
        # both paths.
        handed_on = [(left[name] * gradient).sum() for name, gradient in gradients.items()]
        update.backward(reduce(torch.add, [loss, *handed_on]))
        gradients = {
            name: leaf.grad for name, leaf in before.tensors().items() if leaf.grad is not None
        }
    set_random_state(after_draw)
    update.carried = carried
    update.change_weights()
    return reduce(torch.add, losses)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
