"""Digests of files, manifests, and the work that an id names; and stamps, which make hashing again
unnecessary.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from stages.artifacts.durable import fsync, write_inside
from stages.errors import ArtifactError

LOG_FILES = frozenset({"training.jsonl", "metrics.json"})
"""Files that hold rates and times as well as results, so their bytes differ between equal runs; see
`is_log`.
"""

BLOCK = 1 << 18
"""Bytes of a file that are hashed at a time."""


class FileEntry(TypedDict):
    """One row of a manifest's `files`: size in bytes, and BLAKE2b (512 bits, hexadecimal) of the
    content.
    """

    bytes: int
    blake2b: str


def is_log(relative: str) -> bool:
    """Whether a file describes the run, or the names of input files, and not the result.

    These files are in no digest, since they differ between equal works.
    """
    return relative.startswith(("logs/", "names/")) or relative in LOG_FILES


def file_entry(path: Path, read: Callable[[int], None] = lambda count: None) -> FileEntry:
    """Size and digest of a file; `read` receives the number of bytes of each block."""
    digest = hashlib.blake2b()
    size = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
            read(len(block))
    return {"bytes": size, "blake2b": digest.hexdigest()}


def canonical_json(value: Any) -> str:
    """JSON in a canonical form: sorted names, no white space, no nan."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


CHECKSUM = "checksum"
"""Field of a manifest that covers all others, so that no bit of them changes unseen."""

UNSEALED = frozenset({"command", "created", "seconds", "producer", "digest", CHECKSUM})
"""Fields of a manifest that its digest does not cover: those that differ between equal works, and
the two digests.
"""


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Digest of a manifest's content: the work and its result.

    It does not cover what differs between equal works: the command, times, rates, the producer and
    logs.

    Raises: ValueError or RecursionError for values that no manifest holds (nan, a thousand levels).
    """
    covered = {name: value for name, value in manifest.items() if name not in UNSEALED}
    files = manifest["files"].items()
    covered["files"] = {path: entry for path, entry in files if not is_log(path)}
    covered["metrics"] = _without_rates(manifest["metrics"])
    return hashlib.blake2b(canonical_json(covered).encode()).hexdigest()


def manifest_checksum(manifest: Mapping[str, Any]) -> str:
    """Checksum of all fields of a manifest, with those that differ between equal works."""
    covered = {name: value for name, value in manifest.items() if name != CHECKSUM}
    return hashlib.blake2b(canonical_json(covered).encode()).hexdigest()


def _without_rates(metrics: Any) -> Any:
    """Metrics without those that differ between equal works; `train_loss` is a mean over
    `log_every` updates.
    """
    if isinstance(metrics, list):
        return [_without_rates(value) for value in metrics]
    if not isinstance(metrics, dict):
        return metrics
    result = {}
    for name, value in metrics.items():
        is_rate = name.endswith("_per_second")
        if name not in ("seconds", "train_loss") and not is_rate:
            result[name] = _without_rates(value)
    return result


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    # ctime and inode are included, since tools that copy or replace a file restore its mtime.
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def write_stamps(stamp_file: Path, folder: Path, files: Iterable[str]) -> None:
    """Record that all `files` of `folder` are intact in their present state."""
    stamps = {relative: _stamp(folder / relative) for relative in files}
    # Stamps only save time. `stamp_file` is ROOT/.stamps/KIND/ID.json.
    with suppress(OSError, ArtifactError):
        write_inside(stamp_file.parents[2], stamp_file, json.dumps(stamps))


def find_damage(
    folder: Path,
    files: Mapping[str, FileEntry],
    stamp_file: Path | None = None,
    read: Callable[[int], None] = lambda count: None,
) -> str | None:
    """Message about the first file that differs from its entry; None if all are intact.

    Args:
        folder: folder of the files.
        files: expected sizes and digests.
        stamp_file: stamps to trust and to renew; None: every file is hashed.
        read: receives the number of bytes of each block that is hashed.
    """
    stamps: Any = {}
    if stamp_file:
        with suppress(OSError, ValueError, RecursionError):
            stamps = json.loads(stamp_file.read_text())
    stamps = stamps if isinstance(stamps, dict) else {}
    for relative, entry in files.items():
        problem = _problem(folder / relative, entry, stamps.get(relative), read)
        if problem:
            return f"{folder / relative} {problem}"
    if stamp_file:
        new = [
            folder / relative
            for relative in files
            if stamps.get(relative) != _stamp(folder / relative)
        ]
        with suppress(OSError):
            # Hashed files are forced onto the disk before they are stamped: a power loss could cut
            # a new copy.
            for path in new:
                fsync(path)
            if new:
                write_stamps(stamp_file, folder, files)
    return None


def _problem(
    path: Path, entry: FileEntry, stamp: list[int] | None, read: Callable[[int], None]
) -> str | None:
    if not path.is_file():
        return "is missing"
    present = _stamp(path)
    # The size is compared first, since comparing the content takes reading the file.
    if present[0] != entry["bytes"]:
        return f"has {present[0]} bytes instead of {entry['bytes']}"
    if present != stamp and file_entry(path, read) != entry:
        return "has other content than when it was published"
    return None
