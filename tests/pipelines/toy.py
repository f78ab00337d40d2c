"""A stage that computes in one process and takes its time, as training does."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from stages.artifacts.kinds import STAGES
from stages.artifacts.stage import InputFile, Inputs, Job, SerialStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.interrupts import deferred_signals

SECONDS = 0.1
"""Of a step."""
WORD = "MEMLM_TOY"
"""A variable of the environment that the stage looks at."""


class PauseConfig(StageConfig):
    name: str = ""


class Pause(SerialStage[PauseConfig]):
    """Leaves files in the folder `trace`: `NAME-began` when it begins, `NAME-ended` or `NAME-saved`, and `NAME-died`.

    Args:
        seconds: that it takes, once another stage has begun.
        until: the name of that one.
        error: that it ends with; after `deaths` attempts at which its process is lost.
    """

    name: ClassVar[str] = "pause"
    kind: ClassVar[str] = "tokens"
    Config = PauseConfig

    def __init__(
        self,
        trace: Path,
        seconds: float = 0.0,
        *,
        until: str | None = None,
        error: BaseException | None = None,
        deaths: int = 0,
    ) -> None:
        self.trace, self.seconds, self.until, self.error, self.deaths = trace, seconds, until, error, deaths

    def inputs(self, config: PauseConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        """`file`: one of the user's."""
        return Inputs(files=tuple(InputFile("source", path, path) for path in references.get("file", ())))

    def run(self, job: Job[PauseConfig]) -> dict[str, Any]:
        def note(what: str, text: str = "") -> None:
            with (self.trace / f"{job.config.name}-{what}").open("a") as file:
                file.write(text)

        note("began", "\n".join([str(os.getpid()), os.environ.get(WORD, ""), *sys.argv[1:]]))
        while self.until is not None and not (self.trace / f"{self.until}-began").exists():
            time.sleep(0.1)
        with deferred_signals() as stop:
            steps = round(self.seconds / SECONDS)
            for step in range(steps):
                job.reporter.progress(step, steps, "steps")
                time.sleep(SECONDS)
                if stop:
                    job.draft.add("scratch/step").write_text(str(step))
                    note("saved")
                stop.check()
        if self._deaths(job) < self.deaths:
            note("died", "x")
            os.kill(os.getpid(), signal.SIGKILL)
        if self.error is not None:
            raise self.error
        job.reporter.info("has paused")
        job.draft.add("name").write_text(job.config.name)
        note("ended")
        return {}

    def _deaths(self, job: Job[PauseConfig]) -> int:
        file = self.trace / f"{job.config.name}-died"
        return file.stat().st_size if file.exists() else 0


STAGES.targets["pause"] = f"{__name__}:Pause"
