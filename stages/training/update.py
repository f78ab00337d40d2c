"""Updates of the weights: the objective, the optimizer, and the state that batches carry to the next."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import reduce

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.examples.examples import Batch
from stages.methods.method import BatchIndex, Carried, Method, OwnsStep, Update
from stages.models.backbone import Encoding, Replays
from stages.models.devices import autocast
from stages.models.language_model import LanguageModel
from stages.training.batches import TaskOrder
from stages.training.compiling import Compiled, compiled
from stages.training.low_rank import factors_alone
from stages.training.materials import Run
from stages.training.optimizer import (
    clipped_together,
    learning_rate_factor,
    make_optimizer,
    set_apart,
    set_learning_rates,
)
from stages.training.replay import replay_step


class Objective(nn.Module):
    """The loss as the forward pass of a module, for data-parallel wrappers to see."""

    def __init__(
        self,
        model: LanguageModel,
        method: Method,
        device: torch.device,
        precision: str,
        compiled: Compiled | None = None,
    ) -> None:
        """`compiled`: parts of the model that are compiled; None: none are."""
        super().__init__()
        self._compiled = compiled
        self.model, self.method = model, method
        self.device, self.precision = device, precision
        self.auxiliary: Tensor | None = None
        """Term that layers added to the latest loss, float64 []; None: nothing."""

    def forward(self, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        """The loss of a batch, and what it leaves."""
        auxiliary: list[Tensor] = []

        def keep(backbone: nn.Module, inputs: object, encoding: Encoding) -> None:
            if encoding.auxiliary_loss is not None:
                auxiliary.append(encoding.auxiliary_loss)

        # A hook of the backbone sees every encoding that the method asks for, so no method can forget its part.
        with (
            self._compiled.used() if self._compiled else nullcontext(),
            autocast(self.device, self.precision),
            self.model.backbone.register_forward_hook(keep),
        ):
            loss, carried = self.method.loss(self.model, batch, carried)
        self.auxiliary = torch.stack(auxiliary).sum().detach().double() if auxiliary else None
        return sum(auxiliary, start=loss), carried

    def advance(self, batch: Batch, carried: Carried) -> Carried:
        """State after a batch, of a backbone that replays; the shortest way there, unless the method carries more."""
        with autocast(self.device, self.precision):
            if self.method.carries_past:
                return self.method.loss(self.model, batch, carried)[1]
            return Carried(self.model.advance(batch, carried.state))


class CopiedNumber:
    """A number of the device, which is copied while the host continues."""

    def __init__(self, number: Tensor) -> None:
        """`number`: a scalar. It is the last thing that was asked of its device, so `value` waits for nothing later."""
        self._copy = number.detach().to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if number.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def value(self) -> float:
        """The number, once it is there."""
        if self._copied is not None:
            self._copied.synchronize()
        return float(self._copy)


class UpdateFigures:
    """Figures that an update reports."""

    def __init__(self, step: int, loss: Tensor, auxiliary: Tensor | None, documents: int) -> None:
        """Args:
        step: its number, from 1.
        loss: a scalar.
        auxiliary: the part of the loss that layers added, a scalar; None: nothing.
        documents: number of documents that it has read, in whole or in part.
        """
        self.step, self.documents = step, documents
        self._loss = CopiedNumber(loss)
        self._auxiliary = None if auxiliary is None else CopiedNumber(auxiliary)

    @property
    def loss(self) -> float:
        return self._loss.value()

    @property
    def auxiliary(self) -> float | None:
        return None if self._auxiliary is None else self._auxiliary.value()


class Updates:
    """Makes the updates of a run, one after another; the methods' `Update`.

    Gradients do not reach back beyond an update. Within one they reach from batch to batch only where the method or the
    backbone keeps the graph.
    """

    def __init__(self, run: Run, order: TaskOrder) -> None:
        self._run, self._order = run, order
        self.accumulate = run.config.accumulate
        self.keeps_graph = run.method.keeps_graph or run.model.backbone.keeps_graph
        self.carried = Carried()
        """State after the latest batch, for the next."""
        self.before = Carried()
        """State before the latest batch."""
        replays = isinstance(run.model.backbone, Replays) and not run.method.keeps_graph
        if replays and run.fabric.world_size > 1:  # weights that some segments do not use would be waited for
            raise UsageError(
                f"A {run.config.model.backbone} learns in one process only: start one, with --accumulate for as large "
                "updates."
            )
        self.replays = replays and self.accumulate > 1 and order.layout.streams
        self._auxiliary = list[Tensor]()
        self._weight: float | None = None
        self.number = 0
        groups = run.method.parameter_groups(run.model)
        groups = groups if run.config.lora is None else factors_alone(groups, run.model)
        _freeze(run.model, {id(parameter) for group in groups for parameter in group.parameters})
        groups = set_apart(groups, run.model)
        self._clipped_together = clipped_together(run.model, groups)
        self.bare_optimizer = make_optimizer(run.config.optimizer, groups)
        """The optimizer whose state is saved."""
        parts = compiled(run.model.backbone, run.config.model.backbone) if run.config.compile else None
        self._bare = Objective(run.model, run.method, run.fabric.device, run.config.precision, parts)
        self._bare.to(run.fabric.device)
        if run.fabric.world_size > 1 and len({parameter.device for parameter in run.model.parameters()}) > 1:
            raise UsageError(
                "Tables in the host's memory learn in one process only: start one, or leave model.lookup.on_host out."
            )

    def set_up(self) -> None:
        """Let processes share the work, once weights and optimizer are as the first update finds them."""
        self._objective, self.optimizer = self._run.fabric.setup(self._bare, self.bare_optimizer)

    def make(self, step: int) -> UpdateFigures:
        """Make the update that follows `step` others."""
        config, self.number = self._run.config, step
        factor = learning_rate_factor(step + 1, config.steps, config.schedule)
        set_learning_rates(self.bare_optimizer, config.optimizer.lr * factor)
        self._auxiliary = []
        documents = self._order.documents_in(step)
        loss = make_update(self._run.method, self)
        auxiliary = reduce(torch.add, self._auxiliary) if self._auxiliary else None
        return UpdateFigures(step + 1, loss, auxiliary, documents)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the first group, at the latest update."""
        rate: float = self.bare_optimizer.param_groups[0]["lr"]
        return rate

    # What a method makes an update with

    def batches(self) -> Iterator[Batch]:
        fabric, method, config = self._run.fabric, self._run.method, self._run.config
        for part in range(self.accumulate):
            examples, which, begins = self._order.batch(self.number, part, fabric.global_rank, fabric.world_size)
            self.before = Carried() if begins else self.carried
            self._weight = self._order.weight(self.number, part, fabric.global_rank, fabric.world_size)
            index = BatchIndex(self.number * self.accumulate + part, self.number, config.steps, config.seed)
            # Processes exchange gradients once an update: in the last backward pass.
            with fabric.no_backward_sync(self._objective, enabled=part + 1 < self.accumulate):
                yield method.batch(examples, which, index).to(fabric.device)

    def advance(self, batch: Batch) -> None:
        with torch.no_grad():
            self.carried = self._bare.advance(batch, self.before)

    def loss_from(self, batch: Batch, before: Carried) -> tuple[Tensor, Carried]:
        loss, carried = self._objective(batch, before)
        if self._bare.auxiliary is not None:
            self._auxiliary.append(self._bare.auxiliary / self.accumulate)
        return loss, carried

    def loss(self, batch: Batch) -> Tensor:
        loss, carried = self.loss_from(batch, self.before)
        if self._order.layout.streams:
            self.carried = carried if self.keeps_graph else carried.each(Tensor.detach)
        return loss

    def weighted(self, loss: Tensor) -> Tensor:
        if self._weight is not None:
            return loss * self._weight
        return loss if self.accumulate == 1 else loss / self.accumulate

    def backward(self, loss: Tensor) -> None:
        self._run.fabric.backward(loss)

    def change_weights(self) -> None:
        if self._run.config.clip_norm:
            for parameters in self._clipped_together:
                nn.utils.clip_grad_norm_(parameters, self._run.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.carried = self.carried.each(Tensor.detach)  # the graph of an update ends with it


def _freeze(model: nn.Module, learnt: set[int]) -> None:
    """Leave all but parameters of these `id`s without gradient, and without dropout: as it is evaluated."""
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in learnt)
    model.train()
    for part in model.children():
        learned = [parameter.requires_grad for parameter in part.parameters()]
        part.train(any(learned) or not learned)


def make_update(method: Method, update: Updates) -> Tensor:
    """Make one update, in the method's own way if it has one.

    Returns: its loss, a scalar: the mean over tokens, in nats.
    """
    if isinstance(method, OwnsStep):
        return method.step(update)
    return replay_step(update) if update.replays else plain_step(update)


def plain_step(update: Update) -> Tensor:
    """Gradients of the mean loss over the tokens of all forward batches, then the optimizer's step.

    Where the graph of what is carried is kept, the losses have one backward pass, in the last batch: back-propagation
    through time over the segments of an update.
    """
    losses, pending = [], []
    for number, batch in enumerate(update.batches(), 1):
        loss = update.loss(batch)
        pending.append(update.weighted(loss))
        losses.append(pending[-1].detach().double())
        if number == update.accumulate or not update.keeps_graph:
            update.backward(reduce(torch.add, pending))
            pending.clear()
    update.change_weights()
    return reduce(torch.add, losses)
