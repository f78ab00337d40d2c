"""Output of shards and other units of work, and the log of a draft in which they are committed.

A shard's files have their final names inside the draft, and are known to nobody until they are committed: one line of
JSON in the log, appended when they are durable. Each line has a checksum. Nothing from the first line on that is not as
it was written is believed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.checksums import FileEntry, canonical_json, file_entry, find_damage
from stages.artifacts.durable import fsync, fsync_folders, write_atomically
from stages.artifacts.references import require_inside, stays_inside
from stages.errors import ArtifactError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Written:
    """Output of a piece of work, durable under its final names; in the log it is committed.

    `files`: relative to the draft. `record`: what its stage noted about it. `seconds`: of wall-clock time since the
    commit before it. `discarded`: files of earlier pieces that nobody needs now that this one is there.
    """

    key: str
    files: Mapping[str, FileEntry]
    record: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    discarded: Sequence[str] = ()


_WRITTEN = TypeAdapter(Written)


def read_record(log: Path, key: str) -> dict[str, Any]:
    """Note about a committed piece of work, for a process that does not hold the log.

    Raises: ArtifactError if the log is not as it was written, or lacks it.
    """
    for line in reversed(_complete_lines(log)):
        unit = _parsed(line)
        if unit is None:
            break
        if unit.key == key:
            return dict(unit.record)
    raise ArtifactError(f"{log} is damaged: it has no sound record of {key}. Run the same command again.")


def _spelled(unit: Written) -> str:
    # As a reader will have it: the checksum is compared with one of what JSON gives back.
    content = json.loads(json.dumps(asdict(unit), allow_nan=False))
    return json.dumps(content | {"check": _checksum(content)}) + "\n"


def _parsed(line: str) -> Written | None:
    """The unit of a line; None if it is not as it was written."""
    try:
        content = json.loads(line)
        if content.pop("check") != _checksum(content):
            return None
        unit = _WRITTEN.validate_python(content)
        return unit if all(map(stays_inside, (*unit.files, *unit.discarded))) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.blake2b(canonical_json(content).encode(), digest_size=8).hexdigest()


def _complete_lines(log: Path) -> list[str]:
    if not log.exists():
        return []
    # Behind the last newline is what was not written whole.
    *complete, _torn = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return complete


class ProgressLog:
    """Log of the units of work that are complete and on disk; the only proof of completeness that resuming trusts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.units: dict[str, Written] = {}
        self.damaged_lines = 0
        """Lines that `load` cut off: the first that was not as it was written, and all behind it."""
        self._owners: dict[str, str] = {}

    def load(self, folder: Path) -> None:
        """Read the log of an earlier attempt; a unit whose files are not as recorded is forgotten, to be done again.

        Discarded files that are still there are deleted. Raises: ArtifactError if a link leads out of the folder.
        """
        lines = _complete_lines(self.path)
        for number, unit in enumerate(map(_parsed, lines)):
            if unit is None:
                self.damaged_lines = len(lines) - number
                break
            self._note(unit)
        discarded = {file for unit in self.units.values() for file in unit.discarded} - self._owners.keys()
        require_inside(folder, discarded)
        for file in discarded:
            (folder / file).unlink(missing_ok=True)
        # A line proves that files were durable, not that nobody touched them since.
        damaged = [unit.key for unit in self.units.values() if find_damage(folder, dict(unit.files))]
        for key in damaged:
            del self.units[key]
        # The torn end goes, or the next line would be appended to it and be lost with it.
        write_atomically(self.path, "".join(map(_spelled, self.units.values())))

    def append(self, unit: Written) -> None:
        """Record a unit whose files are durable; on return the record is durable too."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_spelled(unit))
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


class ShardOutput:
    """The files and array blocks of one shard. It needs the draft's folder alone, not its log nor its lock.

    Files may be written at once; blocks are held until `written`, which is called while the next shard is computed.
    """

    def __init__(self, folder: Path, record: Mapping[str, Any] | None = None) -> None:
        """`folder`: the draft's. `record`: what is noted about the shard, JSON."""
        self.folder = folder
        self.record = dict(record or {})
        self._files: list[Path] = []
        self._blocks: list[tuple[ArrayLayout, int, np.ndarray]] = []
        self._discarded: list[str] = []

    def add(self, relative: str | Path) -> Path:
        """Announce a file; returns where to write it, now. Below `scratch` it is never published."""
        self._files.append(Path(relative))
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, layout: ArrayLayout, shard: int, block: "np.ndarray") -> None:
        """Queue one whole shard of an array that is there; `block` must not be changed afterwards."""
        self._blocks.append((layout, shard, block))

    def discard(self, relative: str | Path) -> None:
        """Let a file of an earlier shard be deleted, if it is there, once this one is committed."""
        self._discarded.append(Path(relative).as_posix())

    def written(self, key: str) -> Written:
        """Write what is queued and force everything onto the disk; returns what may then be committed as `key`."""
        files = [*self._files, *(layout.write(self.folder, shard, block) for layout, shard, block in self._blocks)]
        return Written(key, settled(self.folder, files), self.record, discarded=self._discarded)


def settled(folder: Path, files: Iterable[Path]) -> dict[str, FileEntry]:
    """Force files onto the disk, and the folders that name them; returns their sizes and digests by name."""
    files = list(files)
    for file in files:
        fsync(folder / file)
    fsync_folders(folder, [folder / file for file in files])
    return {file.as_posix(): file_entry(folder / file) for file in files}


class Background:
    """A thread that does one call at a time while its caller goes on; what goes wrong is raised at the next step."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._call: Future[None] | None = None

    def run(self, call: Callable[[], None]) -> None:
        """Begin a call, once the one before it has ended. Raises what went wrong with that."""
        self.flush()
        self._call = self._thread.submit(call)

    def flush(self) -> None:
        """Wait for the call under way. Raises what went wrong with it."""
        if self._call is not None:
            call, self._call = self._call, None
            call.result()

    def close(self) -> None:
        """Finish the call under way and stop."""
        try:
            self.flush()
        finally:
            self._thread.shutdown()
