"""Memory replay back-propagation: gradients through many segments, with the activations of one.

Back-propagation through time keeps the activations of all T segments of an update. Here a first
pass without gradient records the state carried into each segment. Then each is recomputed, the last
first, and its backward pass receives the gradient of the state that it passed on: d loss / d
M_{t-1} = d loss_t / d M_{t-1} + (d M_t / d M_{t-1})^T d loss / d M_t. The gradients are those of
back-propagation through time; each segment costs a second pass over the layers that write its
memory.

Source: Wu et al. 2022 (Memformer, arXiv:2010.06891), algorithm 1.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from stages.examples.examples import Batch
from stages.methods.method import Carried, Loss, Update, UpdateBatch
from stages.models.backbone import each
from stages.models.computing import random_state, set_random_state


class Replayable(Update, Protocol):
    """An update whose batches can be computed separately."""

    keeps_graph: bool
    """Whether state carried between these batches keeps its graph: then their losses share one
    `backward`.
    """
    carried: Carried
    """State after the latest batch."""

    def advance(self, part: UpdateBatch) -> None:
        """Advance the state past a batch, without gradient."""

    def loss_from(self, batch: Batch, before: Carried) -> Loss:
        """The loss of a batch from the state `before`, and the state after it."""


class Timestep(NamedTuple):
    """A segment of each stream, with the state at which the first pass reached it."""

    part: UpdateBatch
    before: Carried
    seed: int
    """Seed of its random numbers, so that dropout is the same in both passes."""


def total(losses: Sequence[Tensor]) -> Tensor:
    """The sum of at least one loss, added in their order."""
    return sum(losses[1:], start=losses[0])


def replay_step(update: Replayable) -> Tensor:
    """Same result as `plain_step` with the graph of carried state kept; returns the loss, a scalar."""
    seeds = torch.randint(1 << 62, (update.accumulate,)).tolist()
    after_draw = random_state()
    timesteps = _first_pass(update, seeds)

    losses: list[Tensor] = []
    gradients: dict[str, Tensor] = {}
    carried = Carried()
    for number, timestep in reversed([*enumerate(timesteps)]):
        torch.manual_seed(timestep.seed)
        before = timestep.before
        if number > 0:
            # The method's own tensors have no gradient, and the first segment's is not needed.
            before = before._replace(state=each(before.state, _leaf))
        loss = update.loss_from(timestep.part.batch, before)
        weighted = timestep.part.weighted(loss.total)
        losses.insert(0, weighted.detach().double())
        if number + 1 == len(timesteps):
            carried = loss.carried.each(Tensor.detach)

        # The gradient of <after, gradient> with respect to `after` is `gradient`: one pass covers
        # both paths.
        after = loss.carried.tensors()
        products = [(after[name] * gradient).sum() for name, gradient in gradients.items()]
        update.backward(total([weighted, *products]))
        gradients = {
            name: leaf.grad for name, leaf in before.tensors().items() if leaf.grad is not None
        }
    set_random_state(after_draw)
    update.carried = carried
    update.change_weights()
    return total(losses)


def _first_pass(update: Replayable, seeds: Sequence[int]) -> list[Timestep]:
    """Record the state that is carried into each segment, without gradient."""
    timesteps: list[Timestep] = []
    for part, seed in zip(update.batches(), seeds, strict=True):
        timesteps.append(Timestep(part, part.before.each(Tensor.detach), seed))
        # The state after the last one is computed when it is replayed.
        if len(timesteps) < update.accumulate:
            torch.manual_seed(seed)
            update.advance(part)
    return timesteps


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
