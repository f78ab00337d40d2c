"""Why a disk did not take, or give, what it was asked to: never a bug of memlm, and said in words that help."""

import errno
import os
import re
from pathlib import Path

from stages.errors import MemlmError
from stages.numbers import size

MAKE_ROOM = "What is done is kept; make room and run the same command again."
"""Advice where the disk is full."""
_KEPT = "What is done is kept; the same command goes on from there."
_FULL_IN_WORDS = re.compile(r"Not enough free space to write|\d+ requested and \d+ written")
"""NumPy's `tofile`, with and without room set aside."""
_CODE_IN_WORDS = re.compile(r"\(os error (\d+)\)|Os \{ code: (\d+)")
"""Libraries in Rust: tokenizers, safetensors."""


def disk_failure(error: BaseException, place: Path, missing_bytes: int = 0) -> str | None:
    """Describe an error of the disk of `place`, with advice; None: it is another kind of error.

    Args:
        missing_bytes: what was still to be written, where that is known.
    """
    code = _code(error)
    file = getattr(error, "filename", None) or place
    if code == errno.EIO:
        return f"The disk or its cable fails at {file} (input/output error): bring the store to a sound disk. {_KEPT}"
    if code == errno.EDQUOT:
        return f"Your quota on the disk of {place} is used up. {MAKE_ROOM}"
    if code == errno.EFBIG:
        return f"A file of {place} would be larger than may be (ulimit -f, file system): raise that limit. {_KEPT}"
    return full_disk(place, missing_bytes) if code == errno.ENOSPC else None


def full_disk(place: Path, missing_bytes: int = 0) -> str:
    """The message for a disk without room for bytes, or without room for files."""
    at = next((path for path in (place, *place.absolute().parents) if path.exists()), Path("/"))
    status = os.statvfs(at)
    if status.f_files and not status.f_favail:
        return f"The disk of {place} holds as many files as it can (no inodes are free). {MAKE_ROOM}"
    needed = f"{size(missing_bytes)} more are needed, " if missing_bytes else ""
    return f"The disk of {place} is full: {needed}{size(status.f_bavail * status.f_frsize)} are free. {MAKE_ROOM}"


def _code(error: BaseException) -> int | None:
    if isinstance(error, MemlmError):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if _FULL_IN_WORDS.search(str(error)):
        return errno.ENOSPC
    code = _CODE_IN_WORDS.search(str(error))
    return int(code[1] or code[2]) if code else None
