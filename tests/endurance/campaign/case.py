"""One try of an attack: its folder, its random numbers, its store, and the verdict on what memlm
made of it.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.endurance.campaign.process import Child, Ended
from tests.endurance.campaign.world import World, write_texts
from tests.endurance.kill_and_resume import differences

REFUSALS = (2, 3, 4, 5, 75)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FRAME = re.compile(r'File "[^"]*/((?:stages|memlm_cli|pipelines)/[^"]+)", line (\d+), in (\w+)')

Judgement = Literal["refused", "harmless", "failed", "skipped"]


@dataclass(frozen=True)
class Verdict:
    """What became of a try, and why it failed or was skipped."""

    judgement: Judgement
    why: str = ""


REFUSED, HARMLESS = Verdict("refused"), Verdict("harmless")


def failed(why: str) -> Verdict:
    return Verdict("failed", why)


@dataclass
class Case:
    """A folder with a store and with strangers beside it, who must survive."""

    world: World
    folder: Path
    random: random.Random
    notes: list[str] = field(default_factory=list)
    """What was done, for the report of a failure."""

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def prepare(self) -> None:
        """Write the texts and the strangers."""
        write_texts(self.folder)
        strangers = self.folder / "strangers"
        strangers.mkdir()
        (strangers / "kept.txt").write_text("nobody's but ours\n")
        manifest = self.world.store / self.world.made["model"].reference / "manifest.json"
        (strangers / "manifest.json").write_bytes(manifest.read_bytes())

    def note(self, text: str) -> None:
        self.notes.append(text)

    def start(self, arguments: Sequence[str], **how: Any) -> Child:
        """A command, at work in the case's folder."""
        return Child(arguments, self.folder, **how)

    def memlm(self, *arguments: str, **how: Any) -> Ended:
        """A command, ended."""
        return self.start(arguments, **how).wait()

    def before(self, stage: str) -> None:
        """Let the store hold all that a stage's artifact is made from, and nothing else."""
        self.world.copy(self.store, self.world.ancestors(self.world.made[stage].reference))

    def stage(self, name: str, **how: Any) -> Ended:
        """The command of a stage."""
        return self.memlm(*self.world.arguments(name), **how)

    def wrong(self, name: str) -> str:
        """How what a stage made here differs from what it makes undisturbed; empty if it does not."""
        reference = self.world.made[name].reference
        other = differences(self.world.store / reference, self.store / reference)
        return f"{name} differs in {', '.join(other)}" if other else ""


def judge(ended: Ended, wrong: Callable[[], str] = str) -> Verdict:
    """The verdict on a command: refused with a message, or done with the right result, or a
    failure.

    Args:
        ended: how it ended.
        wrong: says what is wrong with the result of a command that ended with 0.
    """
    said = _CONTROL.search(ended.err)  # what is written to a pipe is data, as it is
    if ended.outside:
        return failed(f"tried {ended.outside}")
    if ended.code is None:
        return failed("endless")
    if ended.code < 0:
        return failed(f"ended by signal {-ended.code}")
    if "Traceback" in ended.err:
        return failed(f"traceback: {_last_line(ended.err)}")
    if ended.code == 1:
        return failed(f"code 1 {_place(ended.log)}: {_last_line(ended.err)}")
    if ended.code != 0 and ended.code not in REFUSALS:
        return failed(f"code {ended.code}: {_last_line(ended.err)}")
    if said:
        return failed(f"control character {said[0]!r} written")
    if ended.code != 0:
        return REFUSED if ended.err.strip() else failed(f"code {ended.code} without a message")
    why = wrong()
    return failed(why) if why else HARMLESS


def snapshot(folder: Path) -> dict[str, bytes]:
    """Everything in a folder."""
    return {str(path): path.read_bytes() for path in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


def _place(log: str) -> str:
    """The last lines of memlm's own that a traceback goes through."""
    frames = _FRAME.findall(log)
    return " < ".join(f"{file}:{line} {name}" for file, line, name in reversed(frames[-2:]))
