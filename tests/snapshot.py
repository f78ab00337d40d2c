"""Texts that are compared whole with a file, which holds the wording in one place."""

import os
from pathlib import Path

UPDATE = "MEMLM_UPDATE_SNAPSHOTS"
"""An environment variable: set, files are written instead of compared."""


def kept(path: Path, text: str) -> str:
    """The text of a file; when snapshots are updated, the given one."""
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def same_as(path: Path, text: str) -> bool:
    """Whether a text is that of a file."""
    return kept(path, text) == text
