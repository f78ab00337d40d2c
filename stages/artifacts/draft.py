"""Work in progress: a folder that grows by committed units of work and becomes an artifact by one
rename.
"""

import json
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.checksums import FileEntry, find_damage
from stages.artifacts.durable import (
    fsync,
    fsync_folders,
    full_disk,
    make_folder,
    remove_folder,
    write_atomically,
)
from stages.artifacts.lock import Attempt
from stages.artifacts.manifest import Manifest
from stages.artifacts.output import Background, ProgressLog, ShardOutput, Written, settled
from stages.artifacts.references import MANIFEST, WORK
from stages.errors import ArtifactError, DataError, ResourceError

if TYPE_CHECKING:
    import numpy as np

PROGRESS = "progress.jsonl"
SCRATCH = "scratch"


class Draft:
    """The partial folder of an artifact that is being made; `make` opens it while it holds the
    artifact's lock.

    It grows by units of work. Shards are written elsewhere, and appended here. The process that
    holds the lock can also add units itself, and commit each under a key. A background thread then
    writes, hashes, syncs and logs the unit, while the next one is computed.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], reads: Collection[Path] = ()) -> None:
        """Open the draft of some work, or begin it anew if the folder holds other work.

        Args:
            path: the partial folder; made if it does not exist.
            work: description of the work, with the digests of its inputs.
            reads: folders of artifacts that must exist at every commit, since Zarr reads missing
            shards as zeros.
        Raises: ArtifactError if the folder, or something in it, is a link, since writes would
        follow it.
        """
        for inside in (path, *path.rglob("*")):
            if inside.is_symlink():
                raise ArtifactError(
                    f"{inside} is a link, and work in progress holds none; remove it with memlm artifacts gc, and the "
                    "same command begins anew."
                )
        self.path = path
        self._reads = reads
        self.scratch = path / SCRATCH
        self.expected_bytes = 0
        self.resumed = self.is_of(path, work)
        # Other work, or work on other bytes, must not be mixed with this work.
        if not self.resumed:
            if path.exists():
                remove_folder(path)
            write_atomically(path / WORK, json.dumps(work, indent=2, sort_keys=True))
        Attempt.of_this_process().write(path)
        make_folder(self.scratch)
        self._log = ProgressLog(path / PROGRESS)
        self._log.load(path)
        self._unit = ShardOutput(path)
        self._metadata: set[Path] = set()
        self._background = Background("commit")
        self._clock = time.monotonic()
        self._refused = False

    @staticmethod
    def is_of(path: Path, work: Mapping[str, Any]) -> bool:
        """Whether a partial folder holds exactly this work."""
        try:
            return json.loads((path / WORK).read_text(encoding="utf-8")) == json.loads(
                json.dumps(work)
            )
        except (OSError, ValueError, RecursionError):
            return False

    # Output of the current unit of work

    def add(self, relative: str | Path) -> Path:
        """Announce a file of the current unit; returns its path. Files below `scratch` are never
        published.
        """
        return self._unit.add(relative)

    def create(self, layout: ArrayLayout) -> None:
        """Make an array, or check it when resuming; any process may write its shards."""
        self._metadata.update(layout.create(self.path))

    def write(self, layout: ArrayLayout, shard: int, block: "np.ndarray") -> None:
        """Queue one shard of an array; it is written when the current unit is committed."""
        self._unit.write(layout, shard, block)

    def write_whole(self, layout: ArrayLayout, values: "np.ndarray") -> None:
        """Make an array, and queue all of its shards for the current unit."""
        self.create(layout)
        for shard in range(layout.shards):
            self.write(layout, shard, values[layout.rows(shard)])

    # Committing

    def commit(self, key: str, record: Mapping[str, Any] | None = None) -> None:
        """Commit everything added since the last commit as unit `key`; returns before it is
        durable.
        """
        # A new unit is begun first, so that later files do not get into this commit.
        unit = self._unit
        self._unit = ShardOutput(self.path)
        unit.record = dict(record or {})
        self._background.run(lambda: self.append(unit.written(key)))

    def append(self, written: Written) -> None:
        """Commit a unit whose files are durable, from any process, and delete the files that it
        discards.

        Raises: ArtifactError if an input artifact was removed meanwhile.
        """
        self.require_reads()
        now = time.monotonic()
        seconds = now - self._clock
        self._clock = now
        self._log.append(replace(written, seconds=seconds))
        # Deleted after the line is on the disk, since resuming before it would need these files.
        for file in written.discarded:
            (self.path / file).unlink(missing_ok=True)

    @property
    def damage(self) -> str:
        """Message about damage in the log of an earlier attempt; empty if there was none."""
        if not self._log.damaged_lines:
            return ""
        return (
            f"{self._log.path} is not as it was written in its last {self._log.damaged_lines} lines, or comes from an "
            f"older memlm; going on from the {len(self._log.units)} units of work before"
        )

    def require_reads(self) -> None:
        """Check that all input artifacts are still there. Raises: ArtifactError."""
        for folder in self._reads:
            if not (folder / MANIFEST).exists():
                raise ArtifactError(
                    f"{folder.parent.name}/{folder.name} was removed while it was read; make it again. What is done is "
                    "kept; the same command goes on from there."
                )

    def flush(self) -> None:
        """Wait until all commits are durable. Raises: the error of a commit."""
        self._background.flush()

    def done(self, key: str) -> bool:
        """Whether a unit of work is committed."""
        return key in self._log.units

    def record(self, key: str) -> dict[str, Any]:
        """The record that a stage committed with a unit."""
        if not self.done(key):
            self.flush()
        return dict(self._log.units[key].record)

    # Disk space

    def expect(self, total_bytes: int) -> None:
        """Set the expected size of the artifact. Raises ResourceError if the missing bytes do not
        fit on the disk.
        """
        self.expected_bytes = total_bytes
        free = shutil.disk_usage(self.path).free
        if self.missing_bytes > free:
            raise ResourceError(full_disk(self.path.parent.parent, self.missing_bytes))

    @property
    def missing_bytes(self) -> int:
        """Bytes that are still to be written, according to the expected size."""
        done = sum(
            e["bytes"] for unit in list(self._log.units.values()) for e in unit.files.values()
        )
        return max(0, self.expected_bytes - done)

    # The end

    @contextmanager
    def first_look(self) -> Iterator[None]:
        """Read the input for the first time within this context; if the input is refused, the draft
        is removed.

        The id covers this input, so no later attempt could resume the draft. A draft of an earlier
        attempt is kept. So is a draft whose input could not be read, since that may be temporary.
        """
        try:
            yield
        except DataError as error:
            self.require_reads()
            self._refused = not self.resumed and not isinstance(error.__cause__, OSError)
            raise

    def close(self) -> None:
        """Finish the current commit and stop. The draft is kept for resuming.

        It is removed if it holds no work, or if its input was refused.
        """
        self._background.close()
        if self._refused or (
            not self._log.units and not any(path.is_file() for path in self.scratch.rglob("*"))
        ):
            shutil.rmtree(self.path, ignore_errors=True)

    def finish_files(self) -> dict[str, FileEntry]:
        """Commit the rest; returns sizes and digests of all files of the artifact, by name."""
        self.commit("finish")
        self.flush()
        files = {
            path: entry for unit in self._log.units.values() for path, entry in unit.files.items()
        }
        files |= settled(self.path, sorted(self._metadata))
        final = {path: files[path] for path in sorted(files) if Path(path).parts[0] != SCRATCH}
        for path in final:
            # safetensors writes files that only their owner can read, but stores are shared
            (self.path / path).chmod(self.path.stat().st_mode & 0o666)
        return final

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of all committed units, with earlier attempts, and of the current one."""
        return (
            sum(unit.seconds for unit in self._log.units.values()) + time.monotonic() - self._clock
        )

    def count_seconds(self, seconds: float) -> None:
        """Add working time of earlier attempts that is not in committed units, such as time before
        a checkpoint.
        """
        self._clock -= seconds


def publish(draft: Path, manifest: Manifest, final: Path) -> None:
    """Turn a draft whose files are all durable into an artifact, complete and durable under its
    final name.

    If publication is interrupted after the manifest is written, another call finishes it.
    """
    write_atomically(draft / MANIFEST, manifest.dumps())
    # Leftovers of interrupted attempts must not be published.
    published = {draft / file for file in (*manifest.files, MANIFEST)}
    for path in sorted(draft.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in published:
            path.unlink()
    fsync_folders(draft, [draft / file for file in manifest.files])
    # Content and file names are on the disk before the rename, so an artifact is never incomplete.
    draft.rename(final)
    fsync(final.parent)


def finished_manifest(draft: Path) -> Manifest | None:
    """The manifest of a draft that only lacks the rename; None if it has no manifest, or its files
    do not match.
    """
    try:
        manifest = Manifest.read(draft)
    except ArtifactError:
        return None
    return None if find_damage(draft, manifest.files) else manifest
