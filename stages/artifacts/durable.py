"""Writing that survives power loss: content first, then the name, then the folder that holds the name."""

import os
from collections.abc import Iterable
from pathlib import Path


def fsync(path: Path) -> None:
    """Force a file's content, or a folder's list of names, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folders(root: Path, files: Iterable[Path]) -> None:
    """Force the names of `files`, all below `root`, onto the disk, innermost folders first."""
    folders = {folder for file in files for folder in file.parents if folder.is_relative_to(root)}
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        fsync(folder)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file so that a reader sees the old content or the new, whatever happens in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync(path.parent)
