"""The folder that an export goes to: whole or not at all, and never in the place of what somebody else wrote."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from stages.artifacts.durable import delete, fsync, fsync_folders, remove_folder
from stages.errors import UsageError

CARD = "README.md"
MARK = "<!-- written by memlm export -->"
"""In the card: the folder is memlm's own, and may be written anew."""
WRITTEN = (
    CARD,
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
"""Files of an export; a folder that holds others is somebody's."""


def check_export_folder(folder: Path) -> None:
    """Raises: UsageError if an export may not take the place of what is at a path."""
    if not folder.parent.is_dir():
        raise UsageError(f"--output {folder}: there is no folder {folder.parent}; make it, or name another.")
    if not folder.exists():
        return
    if folder.is_symlink() or not folder.is_dir() or folder.samefile("."):
        raise UsageError(f"--output {folder} is no folder of its own; name one for the model alone.")
    held = sorted(path.name for path in folder.iterdir())
    others = [name for name in held if not any(fnmatch(name, pattern) for pattern in WRITTEN)]
    if others or (held and not _marked(folder / CARD)):
        what = f"holds {others[0]}, which" if others else "is there and"
        raise UsageError(f"--output {folder} {what} was not written by memlm export; name another folder.")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty folder that takes the place of `folder`, with all that was written into it, at the end.

    It vanishes where writing fails. What was there before is gone for the moment between two renames.
    """
    draft = folder.with_name(f".{folder.name}-{os.getpid()}-partial")
    draft.mkdir()
    try:
        yield draft
        files = [path for path in draft.rglob("*") if path.is_file()]
        for path in files:
            path.chmod(draft.stat().st_mode & 0o666)  # some writers leave files that only their owner may read
            fsync(path)
        fsync_folders(draft, files)
        if folder.exists():
            remove_folder(folder)
        draft.rename(folder)
        fsync(folder.parent)
    finally:
        if draft.exists():
            delete(draft)


def _marked(card: Path) -> bool:
    try:
        return MARK in card.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
