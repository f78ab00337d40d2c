"""Output of a shard: files under their final names inside the draft, known to nobody until they are committed."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
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
