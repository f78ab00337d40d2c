"""The training loop: batches become losses, losses become updates; then validation, and
checkpoints.

`Trainer` is the loop, `Updates` makes one update after the other, and `Objective` is the loss as a
module. `plain_step` is the usual update.
"""

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.examples.examples import Batch
from stages.interrupts import StopRequest, Terminated, deferred_signals
from stages.methods.method import BatchIndex, Carried, Loss, Method, UpdateBatch
from stages.models.computing import autocast
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
    set_learning_rates,
    split_groups,
)
from stages.training.ranks import mean_over_ranks
from stages.training.replay import Replayable, replay_step, total
from stages.training.training_data import Run
from stages.training.validate import validate

CUDA_LOSS_LAG = 1
"""Number of updates on a GPU whose losses the host has not read yet. With one, the device always
has work queued.
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
        method = run.method
        ranks = run.fabric.world_size
        layout = method.layout(run.config.model)
        self.batch_size = 0
        """Examples of a forward batch, over all ranks; 0: batches are cut by tokens."""
        if not run.tasks[0].examples.by_tokens:
            count = min(task.examples.count for task in run.tasks)
            self.batch_size = batch_size(run.config, count, ranks, layout, run.reporter)
        self.order = TaskOrder(run.tasks, method, layout, self.batch_size, run.config, ranks)
        self.updates = Updates(run, self.order)
        self._saver = Saver(run, self.updates.bare_optimizer)

        # A model that has grown must have its size before its weights are loaded.
        step = self._saver.saved_step()
        if step:
            method.resize(run.model, self.order.place(step - 1))
            if method.settings.grows:
                self.updates.renew_optimizer()
        # Weights are restored before the wrapper for several processes sends those of the first to
        # all.
        self.progress, self.updates.carried = self._saver.restore()
        self.updates.set_up()
        method.begin_stream(run.model, run.tasks, run.config.seed)

        self.earlier_seconds = self.progress.seconds
        """Seconds spent in updates before the run was resumed."""
        self.loss_lag = CUDA_LOSS_LAG if run.fabric.device.type == "cuda" else 0
        self._unread: deque[UpdateFigures] = deque()
        """Figures of the latest updates that the host has not read, the oldest first."""

    def train(self) -> Progress:
        """Train to the last step. Raises UsageError if the loss is not finite; on a signal, saves
        first.
        """
        run = self.run
        with ExitStack() as stack:
            if self.progress.step == 0 and run.keeps_tasks:
                save_after(run.model, run.folder, 0)
            course = Course(run, self.progress, self.order.update_tokens, stack)
            warning = self.order.few_documents()
            if self.progress.step == 0 and warning is not None:
                run.reporter.warning(warning)
            # A signal is a request: it takes effect between two updates, where a checkpoint is
            # consistent.
            stop = stack.enter_context(deferred_signals())
            while self.progress.step < run.config.steps:
                self._update()
                self._report(course)
                self._save_if_due(course, stop)
        # The weights after the last update have no loss yet.
        if not all(bool(weight.isfinite().all()) for weight in run.model.parameters()):
            raise UsageError(f"Some weights are not finite after the last step. {self._remedy}")
        return self.progress

    def _update(self) -> None:
        """Make one step, and count its time. On a GPU that includes the end of the previous step."""
        run = self.run
        started = time.perf_counter()
        step = self.progress.step

        new_task = self.order.begins(step)
        if new_task is not None:
            run.method.begin_task(new_task)
            if run.method.settings.renews_optimizer:
                self.updates.renew_optimizer()

        self._unread.append(self.updates.make(step))

        old_task = self.order.ends(step)
        if old_task is not None:
            run.method.end_task(old_task)
            if run.keeps_tasks:
                save_after(run.model, run.folder, self.order.place(step) + 1)

        # There is nothing to show before the first loss is known, so the host waits for it.
        is_first = math.isnan(self.progress.mean_loss)
        self._read_losses(lag=0 if is_first else self.loss_lag)
        self.progress.step += 1
        self.progress.seconds += time.perf_counter() - started

    def _read_losses(self, lag: int) -> None:
        """Wait for the losses of all updates except the latest `lag`, and count them."""
        while len(self._unread) > lag:
            figures = self._unread.popleft()
            loss = figures.loss.value()
            auxiliary = None if figures.auxiliary is None else figures.auxiliary.value()
            if not math.isfinite(loss):
                where = f"step {figures.step} of {self.run.config.steps}"
                if self.run.keeps_tasks:
                    task = self.order.tasks[self.order.place(figures.step - 1)]
                    where += f", in task {task.name}"
                raise UsageError(f"The training loss is {loss} at {where}. {self._remedy}")
            self.progress.add(loss, auxiliary, figures.documents)

    def _flush_losses(self) -> None:
        """Count all losses; the wait for them is time spent in updates."""
        started = time.perf_counter()
        self._read_losses(lag=0)
        self.progress.seconds += time.perf_counter() - started

    @property
    def _remedy(self) -> str:
        return (
            f"Try a lower --lr, a longer warm-up (--set schedule.warmup=…), {self.run.method.hints}"
            "clipping (--set clip_norm=1) or --precision fp32."
        )

    def _report(self, course: Course) -> None:
        """Progress after every step; a line of the journal, and a validation, when they are due."""
        config = self.run.config
        step = self.progress.step
        is_last = step == config.steps
        validates = is_last or bool(config.valid_every and step % config.valid_every == 0)
        writes = is_last or step % config.log_every == 0
        if validates or writes:
            self._flush_losses()
        valid_loss = self._validate() if validates else None
        if writes or valid_loss is not None:
            learning_rate = self.updates.bare_optimizer.param_groups[0]["lr"]
            course.write_line(valid_loss, learning_rate)
        course.show()

    def _validate(self) -> float | None:
        """Loss on the validation split, if there is one; saves the weights if they are the best so
        far.
        """
        run = self.run
        step = self.progress.step
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
            self._flush_losses()
            self._saver.save(self.progress, course.journal, self.updates.carried)
        if stopped:
            stop.check()
            raise Terminated

    def _any_rank(self, flag: bool) -> bool:
        # Clocks and signals differ between processes: if one saves, all must, or they deadlock.
        if self.run.fabric.world_size == 1:
            return flag
        return mean_over_ranks(self.run.fabric, float(flag)) > 0


class Updates(Replayable):
    """Makes the updates of a run, one after another; each has the interface `Update` for methods.

    Gradients do not reach beyond an update. Within one they reach from batch to batch only if the
    method or the backbone keeps the graph.
    """

    def __init__(self, run: Run, order: TaskOrder) -> None:
        self._run = run
        self._order = order
        self.number = 0
        self.accumulate = run.config.accumulate
        self.carried = Carried()
        """State after the latest batch, for the next."""
        self._auxiliary: list[Tensor] = []
        """Auxiliary losses of the update's batches so far, as its journal reports them."""

        backbone = run.model.backbone
        self.keeps_graph = run.method.keeps_graph or backbone.keeps_graph
        replays = backbone.replays and not run.method.keeps_graph
        self.replays = replays and self.accumulate > 1 and order.layout.streams
        _require_one_process(run, replays)

        self.bare_optimizer = self._new_optimizer()
        """The optimizer whose state is saved."""
        config = run.config
        parts = compiled(backbone, config.model.backbone) if config.compile else None
        self._bare = Objective(run.model, run.method, run.fabric.device, config.precision, parts)
        self._bare.to(run.fabric.device)

    def _new_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the weights that the method trains; all others are frozen."""
        run = self._run
        groups = run.method.parameter_groups(run.model)
        if run.config.lora is not None:
            groups = factors_alone(groups, run.model)
        freeze_others(run.model, groups)
        groups = split_groups(groups, run.model)
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
        """Make the update number `step`, from 0, by the method's step."""
        config = self._run.config
        self.number = step
        self._auxiliary.clear()
        factor = learning_rate_factor(step + 1, config.steps, config.schedule)
        set_learning_rates(self.bare_optimizer, config.optimizer.lr * factor)
        documents = self._order.documents_in(step)

        loss = CopiedNumber(self._run.method.step(self))
        auxiliary = CopiedNumber(total(self._auxiliary)) if self._auxiliary else None
        return UpdateFigures(step + 1, loss, auxiliary, documents)

    def batches(self) -> Iterator[UpdateBatch]:
        fabric = self._run.fabric
        method = self._run.method
        config = self._run.config
        for part in range(self.accumulate):
            share = self._order.batch(self.number, part, fabric.global_rank, fabric.world_size)
            before = Carried() if share.begins_epoch else self.carried
            number = self.number * self.accumulate + part
            index = BatchIndex(number, self.number, config.steps, config.seed)
            # Processes exchange gradients once per update: in the last backward pass.
            with fabric.no_backward_sync(self._objective, enabled=part + 1 < self.accumulate):
                batch = method.batch(share.examples, share.indices, index).to(fabric.device)
                yield UpdateBatch(batch, before, self.accumulate, share.weight)

    def loss(self, part: UpdateBatch) -> Tensor:
        loss = self.loss_from(part.batch, part.before)
        if self._order.layout.streams:
            carried = loss.carried
            self.carried = carried if self.keeps_graph else carried.each(Tensor.detach)
        return loss.total

    def loss_of(self, batch: Batch) -> Tensor:
        return self.loss_from(batch, Carried()).total

    def loss_from(self, batch: Batch, before: Carried) -> Loss:
        loss: Loss = self._objective(batch, before)
        if loss.auxiliary:
            auxiliary = torch.stack(loss.auxiliary).sum().detach().double()
            self._auxiliary.append(auxiliary / self.accumulate)
        return loss

    def advance(self, part: UpdateBatch) -> None:
        with torch.no_grad():
            self.carried = self._bare.advance(part.batch, part.before)

    def backward(self, loss: Tensor) -> None:
        self._run.fabric.backward(loss)

    def change_weights(self) -> None:
        if self._run.config.clip_norm:
            for parameters in self._clipped_together:
                clip(parameters, self._run.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.carried = self.carried.each(Tensor.detach)  # the graph of an update ends with it

    def plain_step(self) -> Tensor:
        return replay_step(self) if self.replays else plain_step(self)


def _require_one_process(run: Run, replays: bool) -> None:
    """Raises: UsageError for several processes that would wait for each other, or that cannot share
    a table.
    """
    if run.fabric.world_size == 1:
        return
    if replays:  # they would wait for weights that some segments do not use
        raise UsageError(
            f"A {run.config.model.backbone} learns in one process only: start one, with --accumulate for as large "
            "updates."
        )
    if len({parameter.device for parameter in run.model.parameters()}) > 1:
        raise UsageError(
            "Tables in the host's memory learn in one process only: start one, or leave model.lookup.on_host out."
        )


def plain_step(update: Replayable) -> Tensor:
    """Gradients of the mean loss over the tokens of all forward batches, then the optimizer's step.

    If carried state keeps its graph, the losses have one backward pass, in the last batch:
        back-propagation through time over the segments of an update.

    Returns: the loss, a scalar: the mean over tokens, in nats.
    """
    losses: list[Tensor] = []
    pending: list[Tensor] = []
    for number, part in enumerate(update.batches(), 1):
        loss = part.weighted(update.loss(part))
        pending.append(loss)
        # A float64 sum that is read later: `float()` here would make the host wait for the device
        # in every batch.
        losses.append(loss.detach().double())
        if number == update.accumulate or not update.keeps_graph:
            update.backward(total(pending))
            pending.clear()
    update.change_weights()
    return total(losses)


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
        self.model = model
        self.method = method
        self.device = device
        self.precision = precision
        self._compiled = compiled

    def forward(self, batch: Batch, carried: Carried) -> Loss:
        """The loss of a batch, and the state after it."""
        with (
            self._compiled.used() if self._compiled else nullcontext(),
            autocast(self.device, self.precision),
        ):
            return self.method.loss(self.model, batch, carried)

    def advance(self, batch: Batch, carried: Carried) -> Carried:
        """State after a batch, for a backbone that replays; computed without the loss if the method
        carries no more.
        """
        with autocast(self.device, self.precision):
            if self.method.carries_past:
                return self.method.loss(self.model, batch, carried).carried
            return Carried(self.model.advance(batch, carried.state))
