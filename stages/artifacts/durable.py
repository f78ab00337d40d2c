"""Writing that survives power loss: content first, then the name, then the folder that holds the
name.

Also messages with advice for failures of the disk, which are never a bug of memlm."""

import errno
import glob
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from stages.errors import ArtifactError, MemlmError
from stages.numbers import size

REMOVED = "-removed"


def fsync(path: Path) -> None:
    """Force a file's content, or a folder's entries, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folders(root: Path, files: Iterable[Path]) -> None:
    """Force the names of `files`, all below `root`, onto the disk, innermost folders first."""
    folders = set[Path]()
    for file in files:
        folder = file.parent
        # All folders above a known folder are known. This is fast, since thousands of files share a
        # few folders.
        while folder not in folders and folder.is_relative_to(root):
            folders.add(folder)
            folder = folder.parent
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        fsync(folder)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, and force their names onto the disk; an existing folder costs
    nothing.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    fsync(path.parent)


def place_of(path: Path) -> Path:
    """A path, or its nearest parent that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file so that a reader sees either the old content or the new, even after a crash."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_inside(root: Path, path: Path, content: bytes | str) -> None:
    """Replace a file of a store like `write_atomically`, but follow no link below its root.

    A link at the very path is replaced, and its target stays as it is. Raises: ArtifactError if a
    folder on the way is a link.
    """
    for folder in path.parents:
        if folder == root:
            break
        if folder.is_symlink():
            raise ArtifactError(
                f"{folder} is a link, and inside a store none is followed: remove it."
            )
    if path.is_symlink():
        path.unlink()
    write_atomically(path, content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file next to `path`, which replaces it once its content is on the disk.

    A device or a pipe is written directly. A link stays a link, and its target is replaced.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    make_folder(path.parent)
    # It is in the same folder, since a rename to another file system is a copy, which can be
    # interrupted.
    # Nobody can lay a link at a name that cannot be guessed, and "x" follows none.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(
            path
        )  # the error of a refused write lacks the file's name
        raise
    finally:
        temporary.unlink(missing_ok=True)
    fsync(path.parent)


@contextmanager
def replacing_by_name(path: Path) -> Iterator[Path]:
    """Like `replacing`, for a library that opens the file itself: yields the path of the new file."""
    # A killed process leaves a file as large as the one it wrote.
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        leftover.unlink(missing_ok=True)
    # Libraries follow links, but nobody can lay one at a name that cannot be guessed.
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield unfinished
        fsync(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    fsync(path.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder. While it has its name, its content is complete, even after a power loss.

    It is renamed to `.NAME-PROCESS-removed` before its content is deleted.
    """
    doomed = folder.with_name(f".{folder.name.removeprefix('.')}-{os.getpid()}{REMOVED}")
    # An earlier process with the same id may have left one, and a folder cannot be renamed to a
    # non-empty folder.
    delete(doomed)
    try:
        folder.rename(doomed)
    except FileNotFoundError:
        return  # another process was faster
    fsync(folder.parent)
    delete(doomed)


def delete(folder: Path) -> None:
    """Delete a folder that nobody reads; another process may delete it at the same time."""
    shutil.rmtree(folder, onerror=_raise_unless_gone)


def _raise_unless_gone(function: Any, path: str, error: Any) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


MAKE_ROOM = (
    "What is done is kept; make room and run the same command again. memlm artifacts gc removes "
    "only what no command can use; gc --unnamed --dry-run lists artifacts that nothing needs."
)
"""Advice for a full disk."""
_RESUMES = "What is done is kept; the same command goes on from there."
_FULL_IN_WORDS = re.compile(r"Not enough free space to write|\d+ requested and \d+ written")
"""Messages of NumPy's `tofile` for a full disk, with and without preallocated space."""
_CODE_IN_WORDS = re.compile(r"\(os error (\d+)\)|Os \{ code: (\d+)")
"""Error codes in messages of libraries in Rust: tokenizers, safetensors."""


def disk_failure(error: BaseException, place: Path, missing_bytes: int = 0) -> str | None:
    """Message with advice for an error of the disk of `place`; None: it is another kind of error.

    Args:
        missing_bytes: bytes that were still to be written, if known.
    """
    code = _code(error)
    file = getattr(error, "filename", None) or place
    if code == errno.EIO:
        return f"The disk or its cable fails at {file} (input/output error): bring the store to a sound disk. {_RESUMES}"
    if code == errno.EDQUOT:
        return f"Your quota on the disk of {place} is used up. {MAKE_ROOM}"
    if code == errno.EFBIG:
        return f"A file of {place} would be larger than may be (ulimit -f, file system): raise that limit. {_RESUMES}"
    if code == errno.ENOSPC:
        return full_disk(place, missing_bytes)
    return None


FEW_FILES = 100
"""Free inodes below which a message counts them."""


def full_disk(place: Path, missing_bytes: int = 0) -> str:
    """Message for a disk without free bytes, or without free inodes."""
    status = os.statvfs(place_of(place))
    if status.f_files and not status.f_favail:
        return (
            f"The disk of {place} holds as many files as it can (no inodes are free). {MAKE_ROOM}"
        )
    needed = f"{size(missing_bytes)} more are needed, " if missing_bytes else ""
    free = size(status.f_bavail * status.f_frsize)
    # The work that failed has given its last files back: without this, much room would be "full".
    if status.f_files and status.f_favail < FEW_FILES:
        free += f" and {status.f_favail} files"
    return f"The disk of {place} is full: {needed}{free} are free. {MAKE_ROOM}"


def _code(error: BaseException) -> int | None:
    if isinstance(error, MemlmError):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if _FULL_IN_WORDS.search(str(error)):
        return errno.ENOSPC
    code = _CODE_IN_WORDS.search(str(error))
    return int(code[1] or code[2]) if code else None
