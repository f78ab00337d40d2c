"""Output of shards and other units of work, and the log of a draft in which they are committed.

A shard's files have their final names in the draft, but they only count once they are committed. A
commit is one line of JSON, appended to the log when the files are durable. Each line has a
checksum. The first damaged line and all lines after it are ignored.
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
    """Output of a unit of work, durable under its final names; a line in the log commits it.

    `files`: relative to the draft. `record`: notes of its stage, as JSON. `seconds`: wall-clock
    time since the previous commit. `discarded`: files of earlier units that are no longer needed
    once this unit is committed.
    """

    key: str
    files: Mapping[str, FileEntry]
    record: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    discarded: Sequence[str] = ()


_WRITTEN = TypeAdapter(Written)


def read_record(log: Path, key: str) -> dict[str, Any]:
    """The record of a committed unit of work, for a process that does not own the log.

    Raises: ArtifactError if the log lacks the unit, or is damaged.
    """
    for line in reversed(_complete_lines(log)):
        unit = _parsed(line)
        if unit is None:
            break
        if unit.key == key:
            return dict(unit.record)
    raise ArtifactError(
        f"{log} is damaged: it has no sound record of {key}. Run the same command again."
    )


def _spelled(unit: Written) -> str:
    # The checksum is over the values that a reader gets back from JSON.
    content = json.loads(json.dumps(asdict(unit), allow_nan=False))
    return json.dumps(content | {"check": _checksum(content)}) + "\n"


def _parsed(line: str) -> Written | None:
    """The unit of a line; None if the line is damaged."""
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
    # Text after the last newline was not written completely.
    *complete, _torn = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return complete


class ProgressLog:
    """Log of the units of work that are complete and on disk. Resuming trusts no other proof of
    completeness.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.units: dict[str, Written] = {}
        self.damaged_lines = 0
        """Number of lines that `load` cut off: the first damaged line, and all lines after it."""
        self._owners: dict[str, str] = {}

    def load(self, folder: Path) -> None:
        """Read the log of an earlier attempt. Units whose files differ from the record are dropped,
        to be done again.

        Remaining discarded files are deleted. Raises: ArtifactError if a link leads out of the
        folder.
        """
        lines = _complete_lines(self.path)
        for number, unit in enumerate(map(_parsed, lines)):
            if unit is None:
                self.damaged_lines = len(lines) - number
                break
            self._note(unit)
        discarded = {
            file for unit in self.units.values() for file in unit.discarded
        } - self._owners.keys()
        require_inside(folder, discarded)
        for file in discarded:
            (folder / file).unlink(missing_ok=True)
        # A line proves that files were durable, but not that they are unchanged since.
        damaged = [unit.key for unit in self.units.values() if find_damage(folder, unit.files)]
        for key in damaged:
            del self.units[key]
        # An incomplete last line is removed, since the next line would be appended to it and lost.
        write_atomically(self.path, "".join(map(_spelled, self.units.values())))

    def append(self, unit: Written) -> None:
        """Append a unit whose files are durable; on return the line is durable, too."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_spelled(unit))
            file.flush()
            os.fsync(file.fileno())
        self._note(unit)

    def _note(self, unit: Written) -> None:
        """Add a unit after all others, and remove the files that it discards from the units that
        wrote them.
        """
        self.units.pop(unit.key, None)
        self.units[unit.key] = unit
        self._owners |= dict.fromkeys(unit.files, unit.key)
        for file in unit.discarded:
            owner = self.units.get(self._owners.pop(file, ""))
            if owner is not None:
                files = {name: entry for name, entry in owner.files.items() if name != file}
                self.units[owner.key] = replace(owner, files=files)


class ShardOutput:
    """The files and array blocks of one shard. It only needs the draft's folder, neither its log
    nor its lock.

    Files can be written immediately. Blocks are held until `written`, which runs while the next
    shard is computed.
    """

    def __init__(self, folder: Path, record: Mapping[str, Any] | None = None) -> None:
        """`folder`: folder of the draft. `record`: notes about the shard, as JSON."""
        self.folder = folder
        self.record = dict(record or {})
        self._files: list[Path] = []
        self._blocks: list[tuple[ArrayLayout, int, np.ndarray]] = []
        self._discarded: list[str] = []

    def add(self, relative: str | Path) -> Path:
        """Announce a file; returns the path to write it to. Files below `scratch` are never
        published.
        """
        self._files.append(Path(relative))
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, layout: ArrayLayout, shard: int, block: "np.ndarray") -> None:
        """Queue one whole shard of an existing array; `block` must not be changed afterwards."""
        self._blocks.append((layout, shard, block))

    def discard(self, relative: str | Path) -> None:
        """Mark a file of an earlier shard for deletion once this shard is committed; it may be
        missing.
        """
        self._discarded.append(Path(relative).as_posix())

    def written(self, key: str) -> Written:
        """Write queued blocks and force all files onto the disk; returns the unit `key`, ready to
        be committed.
        """
        files = [
            *self._files,
            *(layout.write(self.folder, shard, block) for layout, shard, block in self._blocks),
        ]
        return Written(key, settled(self.folder, files), self.record, discarded=self._discarded)


def settled(folder: Path, files: Iterable[Path]) -> dict[str, FileEntry]:
    """Force files and their folders onto the disk; returns the files' sizes and digests by name."""
    files = list(files)
    for file in files:
        fsync(folder / file)
    fsync_folders(folder, [folder / file for file in files])
    return {file.as_posix(): file_entry(folder / file) for file in files}


class Background:
    """A thread that runs one call at a time while its caller continues; errors are raised at the
    caller's next call.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._call: Future[None] | None = None

    def run(self, call: Callable[[], None]) -> None:
        """Begin a call, once the previous one has ended. Raises: the error of the previous call."""
        self.flush()
        self._call = self._thread.submit(call)

    def flush(self) -> None:
        """Wait for the current call. Raises: its error."""
        if self._call is not None:
            call = self._call
            self._call = None
            call.result()

    def close(self) -> None:
        """Finish the current call and stop the thread. Raises: the error of the call."""
        try:
            self.flush()
        finally:
            self._thread.shutdown()
