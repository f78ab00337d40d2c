"""The training loop: batches become losses, losses become updates; then validation, and
checkpoints.
"""

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import reduce

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.examples.examples import Batch
from stages.interrupts import StopRequest, Terminated, deferred_signals
from stages.methods.method import BatchIndex, Carried, Grows, LearnsTasks, Method, OwnsStep, Update
from stages.models.backbone import Encoding, Replays
from stages.models.devices import autocast
from stages.models.language_model import LanguageModel
from stages.training.batches import TaskOrder, batch_size
from stages.training.checkpoint import Saver, save_after, save_best
from stages.training.compiling import Compiled, compiled
from stages.training.journal import CopiedNumber, Course, Progress, UpdateFigures, exp
from stages.training.low_rank import factors_alone
from stages.training.optimizer import (
    clip,
    clipped_together,
    freeze_others,
    learning_rate_factor,
    make_optimizer,
    set_apart,
    set_learning_rates,
)
from stages.training.ranks import mean_over_ranks
from stages.training.replay import replay_step
from stages.training.training_data import Run
from stages.training.validate import validate

UNREAD = {"cuda": 1}
"""Number of updates whose losses the host has not read yet. With one, the device always has work
queued.
"""


class Trainer:
    """Trains a model in a folder that keeps checkpoints; the same call resumes where the last one
    ended.

    On CPU, with the same number of threads, an interrupted run ends with the same bytes as an
    uninterrupted one. The batches of step s depend on (seed, s) alone. The checkpoint holds
    weights, optimizer, random state, the state carried between batches, and the method's state.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        layout, ranks = run.method.layout(run.config.model), run.fabric.world_size
        self.batch_size = 0
        """Examples of a forward batch, over all ranks; 0: batches are cut by tokens."""
        if not run.tasks[0].examples.by_tokens:
            count = min(task.examples.count for task in run.tasks)
            self.batch_size = batch_size(run.config, count, ranks, layout, run.reporter)
        self.order = TaskOrder(run.tasks, run.method, layout, self.batch_size, run.config, ranks)
        self.updates = Updates(run, self.order)
        self._saver = Saver(run, self.updates.bare_optimizer)
        if isinstance(run.method, Grows) and (step := self._saver.saved_step()):
            run.method.resize(run.model, self.order.place(step - 1))
            self.updates.renew_optimizer()
        # Weights are restored before the wrapper for several processes sends those of the first to
        # all.
        self.progress, self.updates.carried = self._saver.restore()
        self.earlier_seconds = self.progress.seconds
        """Seconds spent in updates before the run was resumed."""
        self.updates.set_up()
        if isinstance(run.method, LearnsTasks):
            run.method.begin_stream(run.model, run.tasks, run.config.seed)
        self.unread = UNREAD.get(run.fabric.device.type, 0)
        self._made: deque[UpdateFigures] = deque()

    def train(self) -> Progress:
        """Train to the last step. Raises UsageError if the loss is not finite; on a signal, saves
        first.
        """
        with ExitStack() as stack:
            if self.progress.step == 0 and self.run.keeps_tasks:
                save_after(self.run.model, self.run.folder, 0)
            course = Course(self.run, self.progress, self.order.update_tokens, stack)
            if self.progress.step == 0 and (warning := self.order.few_documents()) is not None:
                self.run.reporter.warning(warning)
            # A signal is a request: it takes effect between two updates, where a checkpoint is
            # consistent.
            stop = stack.enter_context(deferred_signals())
            while self.progress.step < self.run.config.steps:
                self._update()
                self._report(course)
                self._save_if_due(course, stop)
        # The weights after the last update have no loss yet.
        if not all(bool(weight.isfinite().all()) for weight in self.run.model.parameters()):
            raise UsageError(f"Some weights are not finite after the last step. {self._remedy}")
        return self.progress

    def _update(self) -> None:
        """Make one step, and count its time. On a GPU that includes the end of the previous step."""
        started, step, method = time.perf_counter(), self.progress.step, self.run.method
        if isinstance(method, LearnsTasks) and (task := self.order.begins(step)) is not None:
            method.begin_task(task)
            if isinstance(method, Grows):
                self.updates.renew_optimizer()
        self._made.append(self.updates.make(step))
        if (task := self.order.ends(step)) is not None:
            if isinstance(method, LearnsTasks):
                method.end_task(task)
            if self.run.keeps_tasks:
                save_after(self.run.model, self.run.folder, self.order.place(step) + 1)
        # There is nothing to show before the first loss is known, so the host waits for it.
        self._read(0 if math.isnan(self.progress.mean_loss) else self.unread)
        self.progress.step += 1
        self.progress.seconds += time.perf_counter() - started

    def _read(self, unread: int) -> None:
        """Wait for the losses of all updates except the latest `unread`, and count them."""
        while len(self._made) > unread:
            made = self._made.popleft()
            loss, auxiliary = (
                made.loss.value(),
                None if made.auxiliary is None else made.auxiliary.value(),
            )
            if not math.isfinite(loss):
                tasks, place = self.order.tasks, self.order.place(made.step - 1)
                where = f"step {made.step} of {self.run.config.steps}"
                where += f", in task {tasks[place].name}" if self.run.keeps_tasks else ""
                raise UsageError(f"The training loss is {loss} at {where}. {self._remedy}")
            self.progress.add(loss, auxiliary, made.documents)

    def _settle(self) -> None:
        """Count all losses; the wait for them is time spent in updates."""
        started = time.perf_counter()
        self._read(0)
        self.progress.seconds += time.perf_counter() - started

    @property
    def _remedy(self) -> str:
        return (
            f"Try a lower --lr, a longer warm-up (--set schedule.warmup=…), {self.run.method.hints}"
            "clipping (--set clip_norm=1) or --precision fp32."
        )

    def _report(self, course: Course) -> None:
        """Progress after every step; a line of the journal, and a validation, when they are due."""
        config, step = self.run.config, self.progress.step
        last = step == config.steps
        validates = last or bool(config.valid_every and step % config.valid_every == 0)
        writes = last or step % config.log_every == 0
        if validates or writes:
            self._settle()
        valid = self._validate() if validates else None
        if writes or valid is not None:
            course.write_line(
                valid, learning_rate=self.updates.bare_optimizer.param_groups[0]["lr"]
            )
        course.show()

    def _validate(self) -> float | None:
        """Loss on the validation split, if there is one; saves the weights if they are the best so
        far.
        """
        run, step = self.run, self.progress.step
        if run.valid is None:
            return None
        loss = validate(run.fabric, run.model, run.method, run.valid, run.config.segment_length)
        run.reporter.info(f"step {step}: validation loss {loss:.4f}, perplexity {exp(loss):.2f}")
        if self.progress.note_validation(loss) and run.fabric.is_global_zero:
            self.progress.valid_digest = save_best(run.model, run.folder, step)
        return loss

    def _save_if_due(self, course: Course, stop: StopRequest) -> None:
        """Save at the end, when the interval is over, and after a signal; all ranks decide alike."""
        stopped = self._any_rank(bool(stop))
        if stopped or self._any_rank(self._saver.is_due(self.progress)):
            self._settle()
            self._saver.save(self.progress, course.journal, self.updates.carried)
        if stopped:
            stop.check()
            raise Terminated

    def _any_rank(self, flag: bool) -> bool:
        # Clocks and signals differ between processes: if one saves, all must, or they deadlock.
        return (
            flag
            if self.run.fabric.world_size == 1
            else mean_over_ranks(self.run.fabric, float(flag)) > 0
        )


class Updates:
    """Makes the updates of a run, one after another; the methods' `Update`.

    Gradients do not reach beyond an update. Within one they reach from batch to batch only if the
    method or the backbone keeps the graph.
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
        if (
            replays and run.fabric.world_size > 1
        ):  # they would wait for weights that some segments do not use
            raise UsageError(
                f"A {run.config.model.backbone} learns in one process only: start one, with --accumulate for as large "
                "updates."
            )
        self.replays = replays and self.accumulate > 1 and order.layout.streams
        self._auxiliary = list[Tensor]()
        self._weight: float | None = None
        self.number = 0
        self.bare_optimizer = self._new_optimizer()
        """The optimizer whose state is saved."""
        parts = (
            compiled(run.model.backbone, run.config.model.backbone) if run.config.compile else None
        )
        self._bare = Objective(
            run.model, run.method, run.fabric.device, run.config.precision, parts
        )
        self._bare.to(run.fabric.device)
        if (
            run.fabric.world_size > 1
            and len({parameter.device for parameter in run.model.parameters()}) > 1
        ):
            raise UsageError(
                "Tables in the host's memory learn in one process only: start one, or leave model.lookup.on_host out."
            )

    def _new_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the weights that the method trains; all others are frozen."""
        run = self._run
        groups = run.method.parameter_groups(run.model)
        groups = groups if run.config.lora is None else factors_alone(groups, run.model)
        freeze_others(run.model, groups)
        groups = set_apart(groups, run.model)
        self._clipped_together = clipped_together(run.model, groups)
        return make_optimizer(run.config.optimizer, groups)

    def renew_optimizer(self) -> None:
        """Replace the optimizer's state by a fresh one for the model's present weights."""
        # In place: the saver and the wrapper for several processes also hold the optimizer.
        self.bare_optimizer.param_groups[:] = self._new_optimizer().param_groups
        self.bare_optimizer.state.clear()

    def set_up(self) -> None:
        """Wrap model and optimizer for several processes, once both are ready for the first update."""
        self._objective, self.optimizer = self._run.fabric.setup(self._bare, self.bare_optimizer)

    def make(self, step: int) -> UpdateFigures:
        """Make the update number `step`, from 0, by the method's own step if it has one."""
        config, method, self.number = self._run.config, self._run.method, step
        factor = learning_rate_factor(step + 1, config.steps, config.schedule)
        set_learning_rates(self.bare_optimizer, config.optimizer.lr * factor)
        self._auxiliary = []
        documents = self._order.documents_in(step)
        if isinstance(method, OwnsStep):  # noqa: SIM108
            loss = method.step(self)
        else:
            loss = replay_step(self) if self.replays else plain_step(self)
        auxiliary = CopiedNumber(reduce(torch.add, self._auxiliary)) if self._auxiliary else None
        return UpdateFigures(step + 1, CopiedNumber(loss), auxiliary, documents)

    # The interface `Update` for methods.

    def batches(self) -> Iterator[Batch]:
        fabric, method, config = self._run.fabric, self._run.method, self._run.config
        for part in range(self.accumulate):
            place = (self.number, part, fabric.global_rank, fabric.world_size)
            examples, which, begins, self._weight = self._order.batch(*place)
            self.before = Carried() if begins else self.carried
            index = BatchIndex(
                self.number * self.accumulate + part, self.number, config.steps, config.seed
            )
            # Processes exchange gradients once per update: in the last backward pass.
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
        # No division by 1: it would add an operation to the graph of every update.
        return loss if self.accumulate == 1 else loss / self.accumulate

    def backward(self, loss: Tensor) -> None:
        self._run.fabric.backward(loss)

    def change_weights(self) -> None:
        if self._run.config.clip_norm:
            for parameters in self._clipped_together:
                clip(parameters, self._run.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.carried = self.carried.each(Tensor.detach)  # the graph of an update ends with it


def plain_step(update: Update) -> Tensor:
    """Gradients of the mean loss over the tokens of all forward batches, then the optimizer's step.

    If carried state keeps its graph, the losses have one backward pass, in the last batch:
        back-propagation through time over the segments of an update.

    Returns: the loss, a scalar: the mean over tokens, in nats.
    """
    losses, pending = [], []
    for number, batch in enumerate(update.batches(), 1):
        loss = update.loss(batch)
        pending.append(update.weighted(loss))
        # A float64 sum that is read later: `float()` here would make the host wait for the device
        # in every batch.
        losses.append(pending[-1].detach().double())
        if number == update.accumulate or not update.keeps_graph:
            update.backward(reduce(torch.add, pending))
            pending.clear()
    update.change_weights()
    return reduce(torch.add, losses)


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
        """`compiled`: the compiled parts of the model; None: there are none."""
        super().__init__()
        self._compiled = compiled
        self.model, self.method = model, method
        self.device, self.precision = device, precision
        self.auxiliary: Tensor | None = None
        """Auxiliary loss of layers in the latest loss, float64 []; None: there is none."""

    def forward(self, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        """The loss of a batch, and the state after it."""
        auxiliary: list[Tensor] = []

        def keep(backbone: nn.Module, inputs: object, encoding: Encoding) -> None:
            if encoding.auxiliary_loss is not None:
                auxiliary.append(encoding.auxiliary_loss)

        # A hook sees every encoding of the backbone, so no method can forget its auxiliary loss.
        with (
            self._compiled.used() if self._compiled else nullcontext(),
            autocast(self.device, self.precision),
            self.model.backbone.register_forward_hook(keep),
        ):
            loss, carried = self.method.loss(self.model, batch, carried)
        self.auxiliary = torch.stack(auxiliary).sum().detach().double() if auxiliary else None
        return sum(auxiliary, start=loss), carried

    def advance(self, batch: Batch, carried: Carried) -> Carried:
        """State after a batch, for a backbone that replays; computed without the loss if the method
        carries no more.
        """
        with autocast(self.device, self.precision):
            if self.method.carries_past:
                return self.method.loss(self.model, batch, carried)[1]
            return Carried(self.model.advance(batch, carried.state))
