"""Steps that make, name and remove artifacts, with a power loss anywhere in them, and then again
from the beginning.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from stages.artifacts.output import ProgressLog, Written
from stages.training import checkpoint
from tests.endurance.power_loss.check import Promise, changes, problems, state
from tests.endurance.power_loss.cut import FATES, build, cuts, relied_on
from tests.endurance.power_loss.record import SYNCING, Recorder, recorded, replaced

Step = Callable[[Path], object]
"""Does something in the store `FOLDER/store` of the folder that it gets; done again, it changes
nothing more.
"""
Case = tuple[int, str]
"""After how many events the power fails, and the fate of what was not synced."""


class Replay:
    """What some steps do to a folder, recorded once."""

    def __init__(
        self, steps: Sequence[Step], prepared: Path, scratch: Path, then: Sequence[Step] = ()
    ) -> None:
        """Record the steps in a copy of the folder `prepared`. Copies are made in `scratch`.

        Args:
            then: what is done after a power loss; if nothing is given, the same steps.
        """
        self._again_steps, self._scratch = then or steps, scratch
        folder = scratch / "undisturbed"
        shutil.copytree(prepared, folder)
        self._before = state(folder)
        with recorded(folder) as self._record, _progress_noted(self._record):
            for step in steps:
                before = state(folder)
                step(folder)
                for promise in changes(before, state(folder)):
                    self._record.done(promise)
        for step in then:
            step(folder)
        self.after = state(folder)
        self.events = len(self._record.events)

    def cases(self) -> list[Case]:
        """All cuts with every fate."""
        return [
            (cut, fate) for cut in cuts(self._record.events, self._record.began) for fate in FATES
        ]

    def sample(self, most: int, seed: int = 0) -> list[Case]:
        """So many of them, the same for a seed."""
        every = self.cases()
        return random.Random(seed).sample(every, min(most, len(every)))

    def failures(self, case: Case) -> list[str]:
        """What goes wrong when the power fails like this and the steps are then done again."""
        cut, fate = case
        events, folder = self._record.events, self._scratch / f"{cut}-{fate}"
        build(events, cut, fate, random.Random(f"{cut} {fate}"), self._record.top, folder)
        promises = [promise for promise in relied_on(events, cut) if isinstance(promise, Promise)]
        found = problems(folder, promises, self._before | self.after)
        found += self._again(folder)
        shutil.rmtree(folder)
        return [
            f"{problem} ({fate} kept of what was not synced by event {cut})" for problem in found
        ]

    def _again(self, folder: Path) -> list[str]:
        try:
            with replaced(dict.fromkeys(SYNCING, lambda descriptor: None)):
                for step in self._again_steps:
                    step(folder)
        except Exception as error:
            return [f"done again: {error!r}"]
        wrong = problems(folder, (), self.after)
        return (
            wrong
            if state(folder) == self.after
            else [*wrong, "done again, the steps left another store"]
        )


@contextmanager
def _progress_noted(recorder: Recorder) -> Iterator[None]:
    """Let promises be recorded when units of work are committed and checkpoints are saved."""
    append, replacing = ProgressLog.append, checkpoint.replacing_by_name

    def appended(log: ProgressLog, unit: Written) -> None:
        append(log, unit)
        recorder.done(Promise(_reference(log.path.parent), unit=unit.key))

    @contextmanager
    def saved(path: Path) -> Iterator[Path]:
        with replacing(path) as file:
            yield file
        recorder.done(Promise(_reference(path.parent.parent), file=path.name))

    with (
        mock.patch.object(ProgressLog, "append", appended),
        mock.patch.object(checkpoint, "replacing_by_name", saved),
    ):
        yield


def _reference(draft: Path) -> str:
    return f"{draft.parent.name}/{draft.name.removeprefix('.').removesuffix('-partial')}"
