"""The training loop: updates, validation, checkpoints."""

import math
import time
from collections import deque
from contextlib import ExitStack

from stages.errors import UsageError
from stages.interrupts import StopRequest, Terminated, deferred_signals
from stages.methods.method import LearnsTasks
from stages.training.after_tasks import save_after
from stages.training.batches import TaskOrder, batch_size
from stages.training.checkpoint import Saver, save_best
from stages.training.journal import Course, exp
from stages.training.materials import Run
from stages.training.progress import Progress
from stages.training.ranks import mean_over_ranks
from stages.training.update import UpdateFigures, Updates
from stages.training.validate import validate

UNREAD = {"cuda": 1}
"""Updates that the host is ahead of their losses. With one, the device always has work queued."""


class Trainer:
    """Trains a model in a folder that keeps checkpoints; the same call resumes where the last one ended.

    On CPU, with the same number of threads, an interrupted run ends with the same bytes as an
    uninterrupted one. The batches of step s depend on (seed, s) alone. The checkpoint holds weights,
    optimizer, random state, the state that batches carry to the next, and what the method keeps.
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
        self._saver = Saver(run, self.updates)
        self.progress = self._saver.restore()
        self.earlier_seconds = self.progress.seconds
        """Seconds that the run had spent in updates before it was resumed."""
        self.updates.set_up()
        if isinstance(run.method, LearnsTasks):
            run.method.begin_stream(run.model, run.tasks, run.config.seed)
        self.unread = UNREAD.get(run.fabric.device.type, 0)
        self._made: deque[UpdateFigures] = deque()

    @property
    def update_tokens(self) -> int:
        """Tokens that one update reads, over all ranks; a mean where examples differ in length."""
        return self.order.update_tokens

    def train(self) -> Progress:
        """Train to the last step. Raises UsageError if the loss is not finite; on a signal, saves first."""
        with ExitStack() as stack:
            if self.progress.step == 0 and self.run.keeps_tasks:
                save_after(self.run.model, self.run.folder, 0)
            course = Course(self.run, self.progress, self.update_tokens, stack)
            if self.progress.step == 0 and (warning := self.order.few_documents()) is not None:
                self.run.reporter.warning(warning)
            stop = stack.enter_context(deferred_signals())
            while self.progress.step < self.run.config.steps:
                self._update()
                self._report(course)
                self._save_if_due(course, stop)
        return self.progress

    def _update(self) -> None:
        """Make one step, and count its time. On a GPU that includes the end of the step before."""
        started, step, method = time.perf_counter(), self.progress.step, self.run.method
        if isinstance(method, LearnsTasks) and (task := self.order.begins(step)) is not None:
            method.begin_task(task)
        self._made.append(self.updates.make(step))
        if (task := self.order.ends(step)) is not None:
            if isinstance(method, LearnsTasks):
                method.end_task(task)
            if self.run.keeps_tasks:
                save_after(self.run.model, self.run.folder, self.order.place(step) + 1)
        self._read(0 if math.isnan(self.progress.mean_loss) else self.unread)
        self.progress.count(time.perf_counter() - started)

    def _read(self, unread: int) -> None:
        """Wait for the losses of all updates but the latest `unread`, and count them."""
        while len(self._made) > unread:
            made = self._made.popleft()
            loss = made.loss
            self._require_finite(loss, made.step)
            self.progress.add(loss, made.auxiliary, made.documents)

    def _settle(self) -> None:
        """Count all losses; the wait for them is time spent in updates."""
        started = time.perf_counter()
        self._read(0)
        self.progress.seconds += time.perf_counter() - started

    def _require_finite(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            raise UsageError(
                f"The training loss is {loss} at step {step} of {self.run.config.steps}. "
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
            course.write_line(valid, self.updates.learning_rate)
        course.show()

    def _validate(self) -> float | None:
        """Loss on the validation split, if there is one; keeps the weights if they are the best so far."""
        run, step = self.run, self.progress.step
        if run.valid is None:
            return None
        loss = validate(run.fabric, run.model, run.method, run.valid, run.config.segment_length)
        run.reporter.info(f"step {step}: validation loss {loss:.4f}, perplexity {exp(loss):.2f}")
        if self.progress.note_validation(loss) and run.fabric.is_global_zero:
            self.progress.valid_digest = save_best(run.model, run.folder, step)
        return loss

    def _save_if_due(self, course: Course, stop: StopRequest) -> None:
        """Save at the end, when it is time, and when a signal came; all ranks do the same."""
        stopped = self._any_rank(bool(stop))
        if stopped or self._any_rank(self._saver.is_due(self.progress)):
            self._settle()
            self._saver.save(self.progress, course.journal)
        if stopped:
            stop.check()
            raise Terminated

    def _any_rank(self, flag: bool) -> bool:
        return flag if self.run.fabric.world_size == 1 else mean_over_ranks(self.run.fabric, float(flag)) > 0
