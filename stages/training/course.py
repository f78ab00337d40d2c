"""The course of a training run as it is seen: lines of its journal, progress, and the time left."""

import math
from contextlib import ExitStack

from stages.training.journal import Journal
from stages.training.progress import Forecast, Pace, Progress
from stages.training.ranks import mean_over_ranks
from stages.training.run import Run


class Course:
    """Reports the progress of a run."""

    def __init__(self, run: Run, progress: Progress, update_tokens: int, stack: ExitStack) -> None:
        """Open the journal, which `stack` closes; only the first process has one."""
        self._run, self._progress, self._update_tokens = run, progress, update_tokens
        self._pace = Pace(update_tokens)
        self._forecast = Forecast(progress, run.config.steps, update_tokens)
        self.journal: Journal | None = None
        if run.fabric.is_global_zero:
            self.journal = Journal(run.folder, progress.journal_bytes, progress.step)
            stack.callback(self.journal.close)

    def write_line(self, valid: float | None, learning_rate: float) -> None:
        """Write a line of the journal: means since the line before."""
        progress, fabric = self._progress, self._run.fabric
        loss, auxiliary = mean_over_ranks(fabric, progress.mean_loss), progress.mean_auxiliary
        if auxiliary is not None:
            auxiliary = mean_over_ranks(fabric, auxiliary)
        if self.journal:
            self.journal.write(
                progress.step,
                tokens=progress.step * self._update_tokens,
                loss=loss,
                **({} if auxiliary is None else {"auxiliary_loss": auxiliary}),
                documents=progress.mean_documents,
                valid_loss=valid,
                learning_rate=learning_rate,
                tokens_per_second=round(progress.steps_per_second * self._update_tokens, 1),
            )
        progress.start_line(loss)

    def show(self) -> None:
        """Show the progress after a step, and once how long the rest will take."""
        step, loss = self._progress.step, self._progress.mean_loss
        speed = self._pace.tokens_per_second(step)
        figures = {"loss": loss, "perplexity": exp(loss)} | ({} if speed is None else {"tokens_per_second": speed})
        self._run.reporter.progress(step, self._run.config.steps, "steps", **figures)
        if (line := self._forecast.line(self._progress)) is not None:
            self._run.reporter.info(line)


def exp(loss: float) -> float:
    """Perplexity of a loss, finite for any."""
    return math.exp(min(loss, 700.0))
