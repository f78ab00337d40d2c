"""Output of a shard: files under their final names inside the draft, known to nobody until they are committed."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.checksums import FileEntry, file_entry
from stages.artifacts.durable import fsync, fsync_folders
from stages.artifacts.progress import Written

if TYPE_CHECKING:
    import numpy as np


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
