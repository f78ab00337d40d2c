"""Work in progress: a folder that grows by committed units of work and becomes an artifact by one rename."""

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
from stages.artifacts.durable import fsync, fsync_folders, full_disk, make_folder, remove_folder, write_atomically
from stages.artifacts.lock import Attempt
from stages.artifacts.manifest import MANIFEST, Manifest
from stages.artifacts.output import Background, ProgressLog, ShardOutput, Written, settled
from stages.errors import ArtifactError, DataError, ResourceError

if TYPE_CHECKING:
    import numpy as np

WORK = "work.json"
PROGRESS = "progress.jsonl"
SCRATCH = "scratch"


class Draft:
    """The partial folder of an artifact that is being made; opened by `make`, under the artifact's lock.

    It grows by units of work. Shards are computed and written elsewhere and appended here. What the process that
    holds the lock does itself, one unit at a time, is added and then committed under a key: written, hashed, forced
    onto the disk and logged, in a background thread, while the next unit is under way.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], reads: Collection[Path] = ()) -> None:
        """Open the draft of some work, or begin it anew if the folder holds other work.

        Args:
            path: the partial folder; made if it is not there.
            work: what is made, down to the digests of its inputs.
            reads: folders of artifacts that must still be there whenever something is committed: Zarr reads a shard
                that is gone as zeros.
        Raises: ArtifactError if the folder, or something in it, is a link: what is written here would go elsewhere.
        """
        _require_no_links(path)
        self.path = path
        self._reads = reads
        self.scratch = path / SCRATCH
        self.expected_bytes = 0
        self.resumed = self.is_of(path, work)
        # Other work, or the same from other bytes: nothing of it may be mixed in.
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
        """Whether a partial folder holds this work, and no other."""
        try:
            return json.loads((path / WORK).read_text(encoding="utf-8")) == json.loads(json.dumps(work))
        except (OSError, ValueError, RecursionError):
            return False

    # What the unit of work under way writes

    def add(self, relative: str | Path) -> Path:
        """Announce a file of the unit under way; returns where to write it. Below `scratch` it is never published."""
        return self._unit.add(relative)

    def create(self, layout: ArrayLayout) -> None:
        """Make an array, or check that it is there when resuming; its shards are anybody's to write."""
        self._metadata.update(layout.create(self.path))

    def write(self, layout: ArrayLayout, shard: int, block: "np.ndarray") -> None:
        """Let the unit under way write one shard of an array when it is committed."""
        self._unit.write(layout, shard, block)

    def write_whole(self, layout: ArrayLayout, values: "np.ndarray") -> None:
        """Make an array, and let the unit under way write all of it."""
        self.create(layout)
        for shard in range(layout.shards):
            self.write(layout, shard, values[layout.rows(shard)])

    # Committing

    def commit(self, key: str, record: Mapping[str, Any] | None = None) -> None:
        """Make all that was added since the last commit durable, as unit `key`; returns before it is."""
        # A new unit first: what is added from now on must not get into the commit under way.
        unit, self._unit = self._unit, ShardOutput(self.path)
        unit.record = dict(record or {})
        self._background.run(lambda: self.append(unit.written(key)))

    def append(self, written: Written) -> None:
        """Commit what is durable already, wherever it was computed, and delete what it discards.

        Raises: ArtifactError if something that is read here was removed meanwhile.
        """
        self.require_reads()
        now = time.monotonic()
        seconds, self._clock = now - self._clock, now
        self._log.append(replace(written, seconds=seconds))
        # After the line: until that is on the disk, going on would need these files.
        for file in written.discarded:
            (self.path / file).unlink(missing_ok=True)

    @property
    def damage(self) -> str:
        """Damage in the log of an earlier attempt; empty if there was none."""
        if not self._log.damaged_lines:
            return ""
        return (
            f"{self._log.path} is not as it was written in its last {self._log.damaged_lines} lines, or comes from an "
            f"older memlm; going on from the {len(self._log.units)} units of work before"
        )

    def require_reads(self) -> None:
        """Raises: ArtifactError if an artifact that is read here is gone."""
        for folder in self._reads:
            if not (folder / MANIFEST).exists():
                raise ArtifactError(
                    f"{folder.parent.name}/{folder.name} was removed while it was read; make it again. What is done is "
                    "kept; the same command goes on from there."
                )

    def flush(self) -> None:
        """Wait until everything committed is durable. Raises what went wrong with it."""
        self._background.flush()

    def done(self, key: str) -> bool:
        """Whether a unit of work is committed."""
        return key in self._log.units

    def record(self, key: str) -> dict[str, Any]:
        """Note of a stage when it committed a unit."""
        if not self.done(key):
            self.flush()
        return dict(self._log.units[key].record)

    # Room on the disk

    def expect(self, total_bytes: int) -> None:
        """Say how large the artifact will be. Raises ResourceError if the disk has no room for what is missing."""
        self.expected_bytes = total_bytes
        free = shutil.disk_usage(self.path).free
        if self.missing_bytes > free:
            raise ResourceError(full_disk(self.path.parent.parent, self.missing_bytes))

    @property
    def missing_bytes(self) -> int:
        """Bytes that are still to be written, as far as the stage named them."""
        done = sum(e["bytes"] for unit in list(self._log.units.values()) for e in unit.files.values())
        return max(0, self.expected_bytes - done)

    # The end

    @contextmanager
    def first_look(self) -> Iterator[None]:
        """Run the first reading of the input: where it is refused here, the draft is removed.

        The id is of this input, so nothing could go on from it. It stays where an earlier attempt began it, and
        where a file could not be read, which may pass.
        """
        try:
            yield
        except DataError as error:
            self.require_reads()
            self._refused = not self.resumed and not isinstance(error.__cause__, OSError)
            raise

    def close(self) -> None:
        """Finish the commit under way and stop; the draft stays as it is, to be resumed, unless no work is in it.

        Nor does it where its input was refused.
        """
        self._background.close()
        if self._refused or (not self._log.units and not any(path.is_file() for path in self.scratch.rglob("*"))):
            shutil.rmtree(self.path, ignore_errors=True)

    def finish_files(self) -> dict[str, FileEntry]:
        """Commit what is left and give the table of all files that the artifact will have."""
        self.commit("finish")
        self.flush()
        files = {path: entry for unit in self._log.units.values() for path, entry in unit.files.items()}
        files |= settled(self.path, sorted(self._metadata))
        final = {path: files[path] for path in sorted(files) if Path(path).parts[0] != SCRATCH}
        for path in final:
            # safetensors leaves files that only their owner may read, and stores are shared
            (self.path / path).chmod(self.path.stat().st_mode & 0o666)
        return final

    @property
    def seconds(self) -> float:
        """Working time of all committed units, earlier attempts included."""
        return sum(unit.seconds for unit in self._log.units.values()) + time.monotonic() - self._clock

    def count_seconds(self, seconds: float) -> None:
        """Add working time of earlier attempts that no committed unit tells of, as that before a checkpoint."""
        self._clock -= seconds


def _require_no_links(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            raise ArtifactError(
                f"{path} is a link, and work in progress holds none; remove it with memlm artifacts gc, and the same "
                "command begins anew."
            )


def publish(draft: Path, manifest: Manifest, final: Path) -> None:
    """Turn a draft whose files are all durable into an artifact, complete and durable under its final name.

    Once the manifest is written nothing else of the draft is needed: an interrupted publication is finished by
    calling this again.
    """
    write_atomically(draft / MANIFEST, manifest.dumps())
    # From here on nothing of the stage is needed; what an interrupted attempt left must not be published.
    _remove_strangers(draft, keep={draft / file for file in (*manifest.files, MANIFEST)})
    fsync_folders(draft, [draft / file for file in manifest.files])
    # Content and names are on the disk before the folder has its own: there is no half of an artifact.
    draft.rename(final)
    fsync(final.parent)


def finished_manifest(draft: Path) -> Manifest | None:
    """The manifest of a draft that lacks only its last name; None if there is none, or it does not fit the files."""
    try:
        manifest = Manifest.read(draft)
    except ArtifactError:
        return None
    return None if find_damage(draft, manifest.files) else manifest


def _remove_strangers(folder: Path, keep: set[Path]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in keep:
            path.unlink()
