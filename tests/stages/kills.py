"""Artifacts that are made although every attempt is killed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ProgressLog, Written


@dataclass
class Attempts:
    """What was seen of the attempts: how many units each had before it, and the most state files
    that lay there.
    """

    begun_with: list[int] = field(default_factory=list)
    most_states: int = 0


def states(scratch: Path) -> list[Path]:
    """Files of the states that models carry from shard to shard."""
    return sorted(scratch.glob("state-*"))


def made_in_pieces(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Artifact], *, logged: bool
) -> tuple[Artifact, Attempts]:
    """Make an artifact in attempts that each add one unit to the log, and are killed while they
    write.

    Args:
        logged: whether the kill comes right behind the line of that unit, before what it discards
            is deleted; otherwise before the line of the next unit, whose files are all there.
    """
    attempts, append, added = Attempts(), ProgressLog.append, [0]

    def killed(log: ProgressLog, unit: Written) -> None:
        attempts.most_states = max(attempts.most_states, len(states(log.path.parent / "scratch")))
        if not added[0]:
            attempts.begun_with.append(len(log.units))
        elif not logged:
            raise KeyboardInterrupt
        append(log, unit)
        added[0] += 1
        if logged and unit.key != "finish":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProgressLog, "append", killed)
        while True:
            added[0] = 0
            try:
                return make(), attempts
            except KeyboardInterrupt:
                continue
