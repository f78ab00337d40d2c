"""Writing that survives power loss: content first, then the name, then the folder that holds the name."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

REMOVED = "-removed"


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


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, whose names are then on the disk; costs nothing where it is there."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    fsync(path.parent)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file so that a reader sees the old content or the new, whatever happens in between."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, written beside `path`, that takes its place once all of it is on the disk.

    A device or a pipe is written as it is; a link stays one.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a write that the disk refuses does not say where
        raise
    finally:
        temporary.unlink(missing_ok=True)
    fsync(path.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder: as long as it has its name nothing in it is missing, after a power loss too.

    While its content is deleted it is called `.NAME-PROCESS-removed`.
    """
    doomed = folder.with_name(f".{folder.name.removeprefix('.')}-{os.getpid()}{REMOVED}")
    delete(doomed)
    try:
        folder.rename(doomed)
    except FileNotFoundError:
        return  # another process was faster
    fsync(folder.parent)
    delete(doomed)


def delete(folder: Path) -> None:
    """Delete a folder that nobody reads; another process may be doing the same."""
    shutil.rmtree(folder, onerror=_raise_unless_gone)


def _raise_unless_gone(function: Any, path: str, error: Any) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]
