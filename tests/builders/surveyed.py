"""Texts with words of known numbers."""

from pathlib import Path

from stages.text.records import TextFile
from tests.builders.records import text_file


def written(folder: Path, name: str, text: str) -> TextFile:
    """A file with a text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return text_file(path)
