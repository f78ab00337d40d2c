"""Which files were hashed and found right, and what the file system said of them then.

A file whose size, times and inode are those of the stamp has not been written since; every other file is
hashed again before it is read. Stamps only save time: without them (a copied or a read-only store) all is hashed.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stages.artifacts.checksums import FileEntry, file_entry
from stages.artifacts.durable import fsync, write_atomically

Stamp = list[int]


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def write_stamps(stamp_file: Path, folder: Path, files: dict[str, FileEntry]) -> None:
    """Note that all `files` of `folder` are right as they are now."""
    stamps = {relative: _stamp(folder / relative) for relative in files}
    with suppress(OSError):
        write_atomically(stamp_file, json.dumps(stamps))


def find_damage(
    folder: Path,
    files: dict[str, FileEntry],
    stamp_file: Path | None = None,
    read: Callable[[int], None] = lambda count: None,
) -> dict[str, str]:
    """Find damage in each file that is not as its entry says; empty if all is right.

    Args:
        folder: where the files lie.
        files: what they must be.
        stamp_file: stamps to trust and to renew; None hashes everything.
        read: hears of bytes that are hashed.
    """
    stamps = _read_stamps(stamp_file) if stamp_file else {}
    damage = {}
    for relative, entry in files.items():
        problem = _problem(folder / relative, entry, stamps.get(relative), read)
        if problem:
            damage[relative] = problem
    if stamp_file and not damage:
        _renew_stamps(stamp_file, folder, files, stamps)
    return damage


def _problem(path: Path, entry: FileEntry, stamp: Stamp | None, read: Callable[[int], None]) -> str | None:
    if not path.is_file():
        return "is missing"
    if path.stat().st_size != entry["bytes"]:
        return f"has {path.stat().st_size} bytes instead of {entry['bytes']}"
    if _stamp(path) != stamp and file_entry(path, read) != entry:
        return "has other content than when it was published"
    return None


def _renew_stamps(stamp_file: Path, folder: Path, files: dict[str, FileEntry], stamps: dict[str, Stamp]) -> None:
    """Stamp what was hashed, once it is on the disk: of a copy made just before a power loss less may be left."""
    new = [folder / relative for relative in files if stamps.get(relative) != _stamp(folder / relative)]
    with suppress(OSError):
        for path in new:
            fsync(path)
        if new:
            write_stamps(stamp_file, folder, files)


def _read_stamps(stamp_file: Path) -> dict[str, Stamp]:
    try:
        stamps = json.loads(stamp_file.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return stamps if isinstance(stamps, dict) else {}
