"""The training loop: updates, validation, checkpoints."""

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from stages.artifacts.durable import fsync
from stages.errors import UsageError
from stages.examples.streams import Streams
from stages.interrupts import StopRequest, Terminated, deferred_signals
from stages.methods.method import Batch, BatchIndex, Carried, Method
from stages.methods.segments import Segments
from stages.models.language_model import LanguageModel
from stages.models.windows import WindowSettings
from stages.reporting import Reporter, Silent
from stages.training.batches import SegmentOrder, batch_size
from stages.training.best import best_file, drop_others, save_best
from stages.training.checkpoint import (
    CHECKPOINT,
    RankState,
    damaged_checkpoint,
    load_checkpoint,
    random_state,
    save_checkpoint,
)
from stages.training.compiling import compiled
from stages.training.config import TrainConfig
from stages.training.groups import clipped_together, set_apart
from stages.training.journal import LINES, Journal, is_whole
from stages.training.low_rank import factors_alone
from stages.training.objective import Objective
from stages.training.optimizer import make_optimizer, set_learning_rates
from stages.training.progress import Forecast, Pace, Progress, Splits
from stages.training.ranks import gather_over_ranks, mean_over_ranks
from stages.training.readings import UpdateReadings
from stages.training.schedule import learning_rate_factor
from stages.training.update import make_update
from stages.training.validate import validate

UNREAD = {"cuda": 1}
"""How many updates the host goes on while their losses are computed: one, so that the device has always work queued."""


class Trainer:
    """Trains a model in a folder that keeps checkpoints; the same call goes on where the last one ended.

    On CPU, with the same number of threads, an interrupted run ends with the same bytes as an
    uninterrupted one: the batches of step s depend on (seed, s) alone, and the checkpoint holds
    weights, optimizer, random state and what the backbone carries from batch to batch.
    """

    def __init__(
        self,
        fabric: Fabric,
        config: TrainConfig,
        model: LanguageModel,
        method: Method,
        splits: Splits,
        folder: Path,
        reporter: Reporter,
        checkpoint_seconds: float,
    ) -> None:
        self.fabric, self.config, self.splits = fabric, config, splits
        self.method, self.folder = method, folder
        self.reporter = reporter if fabric.is_global_zero else Silent()
        self.checkpoint_seconds = checkpoint_seconds
        self.segments = Segments(splits.train, config.segment_length, splits.eos, splits.documents)
        self.layout = method.layout(config.model)
        self.batch_size = batch_size(config, self.segments, fabric.world_size, self.layout, self.reporter)
        self._order = SegmentOrder(self.segments, method, self.layout, self.batch_size, config.seed)
        self.progress = Progress()
        self.accumulate = config.accumulate
        self._carried = self._before = Carried()
        self._auxiliary: Tensor | None = None
        self._readings: deque[UpdateReadings] = deque()
        self.unread = UNREAD.get(fabric.device.type, 0)
        self.model = model
        self.keeps_graph = method.keeps_graph or model.backbone.keeps_graph
        groups = method.parameter_groups(model)
        groups = groups if config.lora is None else factors_alone(groups, model)
        self._freeze({id(parameter) for group in groups for parameter in group.parameters})
        groups = set_apart(groups, model)
        parts = compiled(model.backbone, config.model.backbone) if config.compile else None
        objective = Objective(model, method, fabric.device, config.precision, parts)
        objective.to(fabric.device)
        self._optimizer = make_optimizer(config.optimizer, groups)
        self._clipped_together = clipped_together(model, groups)
        self._restore()
        self.earlier_seconds = self.progress.seconds
        """Spent in updates before, by the run that is gone on with."""
        self._bare_objective = objective
        self.objective, self.optimizer = fabric.setup(objective, self._optimizer)
        self._saved_at = time.monotonic()

    def _freeze(self, learnt: set[int]) -> None:
        """Leave all but parameters of these `id`s without gradient, and without dropout: as it is evaluated."""
        for parameter in self.model.parameters():
            parameter.requires_grad_(id(parameter) in learnt)
        self.model.train()
        for part in self.model.children():
            learned = [parameter.requires_grad for parameter in part.parameters()]
            part.train(any(learned) or not learned)

    # One run

    def run(self) -> Progress:
        """Train to the last step. Raises UsageError if the loss is not finite; on a signal, saves first."""
        with ExitStack() as stack:
            self.journal = self._open_journal(stack)
            if self.progress.step == 0 and (warning := self._order.few_documents(self.accumulate)) is not None:
                self.reporter.warning(warning)
            stop = stack.enter_context(deferred_signals())
            self._pace = Pace(self.update_tokens)
            self._forecast = Forecast(self.progress, self.config.steps, self.update_tokens)
            while self.progress.step < self.config.steps:
                self._update()
                self._report()
                self._save_if_due(stop)
        return self.progress

    def _open_journal(self, stack: ExitStack) -> Journal | None:
        if not self.fabric.is_global_zero:
            return None
        journal = Journal(self.folder, self.progress.journal_bytes, self.progress.step)
        stack.callback(journal.close)
        return journal

    def _update(self) -> None:
        """One step, and the time that it took: on a GPU, with the end of the one before."""
        started = time.perf_counter()
        self._set_learning_rate(self.progress.step + 1)
        self._auxiliary, documents = None, self._documents_read()
        loss = make_update(self.method, self)
        self._readings.append(UpdateReadings(self.progress.step + 1, loss, self._auxiliary, documents))
        self._read(0 if math.isnan(self.progress.mean_loss) else self.unread)
        self.progress.count(time.perf_counter() - started)

    def _read(self, unread: int) -> None:
        """Count the losses of all updates but so many of the latest, waiting for them."""
        while len(self._readings) > unread:
            made = self._readings.popleft()
            loss = made.loss
            self._require_finite(loss, made.step)
            self.progress.add(loss, made.auxiliary, made.documents)

    def _settle(self) -> None:
        """Count all losses; the wait for them is time spent in updates."""
        started = time.perf_counter()
        self._read(0)
        self.progress.seconds += time.perf_counter() - started

    def _documents_read(self) -> int:
        """Documents of which the present update has read a part, over all ranks."""
        first = self.progress.step * self.accumulate
        return self._order.documents_in(range(first, first + self.accumulate))

    def _set_learning_rate(self, step: int) -> None:
        factor = learning_rate_factor(step, self.config.steps, self.config.schedule)
        set_learning_rates(self._optimizer, self.config.optimizer.lr * factor)

    # What an update is made with (`methods.method.Update`)

    def batches(self) -> Iterator[Batch]:
        for part in range(self.accumulate):
            number = self.progress.step * self.accumulate + part
            self._before = Carried() if self._order.begins_epoch(number) else self._carried
            # Processes exchange gradients once an update: in the last backward pass.
            with self.fabric.no_backward_sync(self.objective, enabled=part + 1 < self.accumulate):
                yield self._batch(number)

    def loss(self, batch: Batch) -> Tensor:
        loss: Tensor
        loss, carried = self.objective(batch, self._before)
        self._add_auxiliary(self._bare_objective.auxiliary)
        if self.layout.streams:
            self._carried = carried if self.keeps_graph else carried.each(Tensor.detach)
        return loss

    def _add_auxiliary(self, auxiliary: Tensor | None) -> None:
        """Add what layers added to the loss of a forward batch to that of the update."""
        if auxiliary is not None:
            share = auxiliary / self.accumulate
            self._auxiliary = share if self._auxiliary is None else self._auxiliary + share

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)

    def change_weights(self) -> None:
        if self.config.clip_norm:
            for parameters in self._clipped_together:
                nn.utils.clip_grad_norm_(parameters, self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._carried = self._carried.each(Tensor.detach)  # the graph of an update ends with it

    def _batch(self, number: int) -> Batch:
        """This rank's share of forward batch `number`, counted from the start of training."""
        share = self._order.share(number, self.fabric.global_rank, self.fabric.world_size)
        index = BatchIndex(number, number // self.accumulate, self.config.steps, self.config.seed)
        batch = self.method.batch(self.segments, share, index)
        if self.config.model.reads.documents:
            batch.document_offset = torch.from_numpy(self.segments.back(share))
        return batch.to(self.fabric.device)

    def _require_finite(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            raise UsageError(
                f"The training loss is {loss} at step {step} of {self.config.steps}. "
                f"Try a lower --lr, a longer warm-up (--set schedule.warmup=…), {self.method.hints}"
                "clipping (--set clip_norm=1) or --precision fp32."
            )

    # What is seen of it

    def _report(self) -> None:
        """Progress after every step; a line of the journal, and a validation, when they are due."""
        step, last = self.progress.step, self.progress.step == self.config.steps
        every = self.config.valid_every
        validates = last or bool(every and step % every == 0)
        writes = last or step % self.config.log_every == 0
        if validates or writes:
            self._settle()
        valid = self._validate() if validates else None
        if writes or valid is not None:
            self._write_line(valid)
        loss, speed = self.progress.mean_loss, self._pace.tokens_per_second(step)
        figures = {"loss": loss, "perplexity": _exp(loss)} | ({} if speed is None else {"tokens_per_second": speed})
        self.reporter.progress(step, self.config.steps, "steps", **figures)
        if (line := self._forecast.line(self.progress)) is not None:
            self.reporter.info(line)

    @property
    def update_tokens(self) -> int:
        """Tokens that one update reads, over all ranks."""
        return self.batch_size * self.config.segment_length * self.config.accumulate

    def _write_line(self, valid: float | None) -> None:
        loss, auxiliary = mean_over_ranks(self.fabric, self.progress.mean_loss), self.progress.mean_auxiliary
        if auxiliary is not None:
            auxiliary = mean_over_ranks(self.fabric, auxiliary)
        if self.journal:
            self.journal.write(
                self.progress.step,
                tokens=self.progress.step * self.update_tokens,
                loss=loss,
                **({} if auxiliary is None else {"auxiliary_loss": auxiliary}),
                documents=self.progress.mean_documents,
                valid_loss=valid,
                learning_rate=self._optimizer.param_groups[0]["lr"],
                tokens_per_second=round(self.progress.steps_per_second * self.update_tokens, 1),
            )
        self.progress.start_line(loss)

    def _validate(self) -> float | None:
        """Loss on the validation split, if there is one; keeps the weights if they are the best so far."""
        if self.splits.valid is None:
            return None
        length = self.config.segment_length
        cutting = self.config.model.cutting(WindowSettings(length, length))
        documents = self.splits.valid_documents
        documents = np.array([0, len(self.splits.valid)]) if documents is None else documents
        valid = Streams(self.splits.valid, self.splits.eos, cutting, documents)
        loss = validate(self.fabric, self.model, self.method, valid, length)
        step = self.progress.step
        self.reporter.info(f"step {step}: validation loss {loss:.4f}, perplexity {_exp(loss):.2f}")
        if self.progress.note_validation(loss) and self.fabric.is_global_zero:
            self.progress.valid_digest = save_best(self.model, self.folder, step)
        return loss

    # Checkpoints

    def _save_if_due(self, stop: StopRequest) -> None:
        """Save at the end, when it is time, and when a signal came; all ranks do the same."""
        due = (
            self.progress.step == self.config.steps
            or time.monotonic() - self._saved_at >= self.checkpoint_seconds
            or self.progress.valid_step == self.progress.step
        )
        stopped = self._any_rank(bool(stop))
        if stopped or self._any_rank(due):
            self._save()
        if stopped:
            stop.check()
            raise Terminated

    def _any_rank(self, flag: bool) -> bool:
        return flag if self.fabric.world_size == 1 else mean_over_ranks(self.fabric, float(flag)) > 0

    def _save(self) -> None:
        self._settle()
        own = RankState(random_state(), self._carried.each(Tensor.cpu))
        ranks = gather_over_ranks(self.fabric, own)
        if self.fabric.is_global_zero:
            assert self.journal is not None
            self.progress.journal_bytes, self.progress.journal_digest = self.journal.sync()
            fsync(self.folder)  # the journal and the best weights have their names before the checkpoint counts on them
            save_checkpoint(self.folder / CHECKPOINT, self.model, self._optimizer, ranks, asdict(self.progress))
            drop_others(self.folder, self.progress)
        self._saved_at = time.monotonic()

    def _read_progress(self, path: Path, saved: dict[str, Any]) -> Progress:
        """The progress of a checkpoint. Raises: ArtifactError if what it speaks of is not as it was saved."""
        try:
            progress = Progress(**saved)
        except TypeError as error:
            raise damaged_checkpoint(path, str(error)) from error
        if self.fabric.is_global_zero:
            best_file(self.folder, progress)
            if not is_whole(self.folder, progress.journal_bytes, progress.journal_digest):
                raise damaged_checkpoint(path, f"{LINES} is not as it was saved")
        return progress

    def _restore(self) -> None:
        path = self.folder / CHECKPOINT
        if path.is_file():
            rank, ranks = self.fabric.global_rank, self.fabric.world_size
            saved, carried = load_checkpoint(path, self.model, self._optimizer, rank, ranks)
            self.progress = self._read_progress(path, saved)
            self._carried = carried.each(lambda tensor: tensor.to(self.fabric.device))
            self.reporter.info(f"resumed: {self.progress.step} of {self.config.steps} steps")


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))
