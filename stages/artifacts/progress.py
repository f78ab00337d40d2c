"""The record of a draft's committed work: one line of JSON for each unit, appended when its files are durable."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stages.artifacts.checksums import FileEntry
from stages.artifacts.durable import write_atomically
from stages.artifacts.stamps import find_damage


@dataclass(frozen=True)
class Written:
    """What a piece of work wrote, durable under its final names; in the log it is committed.

    `files`: relative to the draft. `record`: what its stage noted about it. `seconds`: of wall-clock time since the
    commit before it. `discarded`: files of earlier pieces that nobody needs now that this one is there.
    """

    key: str
    files: Mapping[str, FileEntry]
    record: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    discarded: Sequence[str] = ()


def read_record(log: Path, key: str) -> dict[str, Any]:
    """What was noted about a committed piece of work, for a process that does not hold the log."""
    units = (Written(**json.loads(line)) for line in reversed(_complete_lines(log)))
    return dict(next(unit.record for unit in units if unit.key == key))


def _complete_lines(log: Path) -> list[str]:
    if not log.exists():
        return []
    *complete, _torn = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return complete


class ProgressLog:
    """Writtens of work that are complete and on disk; the only proof of completeness that resuming trusts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.units: dict[str, Written] = {}
        self._owners: dict[str, str] = {}

    def load(self, folder: Path) -> None:
        """Read the log of an earlier attempt; a unit whose files are not as recorded is forgotten, to be done again.

        Discarded files that are still there are deleted.
        """
        for line in _complete_lines(self.path):
            self._note(Written(**json.loads(line)))
        for file in {file for unit in self.units.values() for file in unit.discarded} - self._owners.keys():
            (folder / file).unlink(missing_ok=True)
        damaged = [unit.key for unit in self.units.values() if find_damage(folder, dict(unit.files))]
        for key in damaged:
            del self.units[key]
        self._rewrite()

    def append(self, unit: Written) -> None:
        """Record a unit whose files are durable; on return the record is durable too."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(unit), allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._note(unit)

    def _note(self, unit: Written) -> None:
        """Take a unit in behind all others, and what it discards out of the units that wrote it."""
        self.units.pop(unit.key, None)
        self.units[unit.key] = unit
        self._owners |= dict.fromkeys(unit.files, unit.key)
        for file in unit.discarded:
            owner = self.units.get(self._owners.pop(file, ""))
            if owner is not None:
                kept = {name: entry for name, entry in owner.files.items() if name != file}
                self.units[owner.key] = replace(owner, files=kept)

    def _rewrite(self) -> None:
        lines = [json.dumps(asdict(unit)) + "\n" for unit in self.units.values()]
        write_atomically(self.path, "".join(lines))
