"""The folder that an export goes to: whole or not at all, and never in the place of what somebody else wrote."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from stages.artifacts.durable import delete, fsync, fsync_folders, remove_folder
from stages.errors import UsageError
from stages.text.files import file_digest

CARD = "README.md"
RECORD = "memlm.json"
"""File of an export that lists the BLAKE2b of every other file. A file that changed since, or is missing, is the
user's."""


def check_export_folder(folder: Path) -> None:
    """Raises: UsageError if an export may not take the place of what is at a path."""
    if not folder.parent.is_dir():
        raise UsageError(f"--output {folder}: there is no folder {folder.parent}; make it, or name another.")
    if not folder.is_symlink() and not folder.exists():
        return
    if folder.is_symlink() or not folder.is_dir() or folder.samefile("."):
        raise UsageError(f"--output {folder} is no folder of its own; name one for the model alone.")
    written = _written(folder)
    others = [path.name for path in sorted(folder.iterdir()) if not _as_written(path, written)]
    if others:
        raise UsageError(
            f"--output {folder} holds {others[0]}, which was not written by memlm export, or was changed since; "
            "name another folder."
        )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty folder that takes the place of `folder`, with all that was written into it, at the end.

    It vanishes where writing fails. What was there before is gone for the moment between two renames.
    """
    outer = Path(mkdtemp(prefix=f".{folder.name}-", suffix="-partial", dir=folder.parent))
    draft = outer / folder.name  # unlike the outer one it may be read by whoever may read what this user writes
    try:
        draft.mkdir()
        yield draft
        (draft / RECORD).write_text(json.dumps({"blake2b": _digests(draft)}, indent=2) + "\n", "utf-8")
        files = [path for path in draft.rglob("*") if path.is_file()]
        for path in files:
            path.chmod(draft.stat().st_mode & 0o666)  # some writers leave files that only their owner may read
            fsync(path)
        fsync_folders(draft, files)
        check_export_folder(folder)  # writing takes minutes, in which somebody may have saved something there
        if folder.exists():
            remove_folder(folder)
        draft.rename(folder)
        fsync(folder.parent)
    finally:
        delete(outer)


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: file_digest(str(path)) for path in sorted(folder.iterdir())}


def _written(folder: Path) -> dict[str, str]:
    """Files that the export of a folder recorded; empty where it recorded none."""
    try:
        written = json.loads((folder / RECORD).read_text("utf-8"))["blake2b"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return written if isinstance(written, dict) else {}


def _as_written(path: Path, written: Mapping[str, str]) -> bool:
    """Whether a file is one of an export, and none that somebody put in its place."""
    if path.is_symlink() or not path.is_file():
        return False
    return bool(written) if path.name == RECORD else written.get(path.name) == file_digest(str(path))


class Form(NamedTuple):
    """A model as transformers knows it."""

    architecture: str
    """Its class there."""
    longest: int | None
    """Tokens that it reads at once; None: any number."""
