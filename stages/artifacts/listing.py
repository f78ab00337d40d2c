"""Lists a store's folders, by names alone: nothing is read but ids that names stand for."""

import os
from pathlib import Path

from stages.artifacts.kinds import KINDS
from stages.artifacts.references import is_id


def references(root: Path) -> list[str]:
    """`kind/id` of all that stands in the place of a finished artifact, readable or not."""
    return [f"{kind}/{name}" for kind in KINDS for name in sorted(_entries(root / kind)) if is_id(name)]


def name_file(root: Path, kind: str, name: str) -> Path:
    """Where a name of an artifact is kept."""
    return root / "names" / kind / name


def names(root: Path, kind: str) -> dict[str, str]:
    """The names given to artifacts of a kind, and the ids that they stand for."""
    folder = name_file(root, kind, "_").parent
    return {name: named_id(folder / name) for name in sorted(_entries(folder)) if not name.startswith(".")}


def named_id(file: Path) -> str:
    """The id in the file of a name."""
    return file.read_text(encoding="utf-8", errors="replace").strip()


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
