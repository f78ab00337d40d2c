"""Artifacts whose files were changed."""

from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import file_entry
from stages.artifacts.store import Store
from tests.stages.artifacts.toy import restate


def signed(artifact: Artifact, *files: Path) -> Artifact:
    """The artifact with its manifest restated for changed files."""
    entries = {file.as_posix(): file_entry(artifact.path / file) for file in files}

    def change(content: dict[str, Any]) -> None:
        there = {
            file: entry
            for file, entry in content["files"].items()
            if (artifact.path / file).is_file()
        }
        content["files"] = there | entries

    restate(artifact.path, change)
    return Store(artifact.path.parent.parent).get(artifact.reference)


def rewritten(artifact: Artifact, name: str, values: np.ndarray) -> Artifact:
    layout = ArrayLayout(name, values.shape, values.dtype, 1 << 20)
    (artifact.path / name / "zarr.json").unlink()
    files = layout.create(artifact.path)
    return signed(artifact, *files, layout.write(artifact.path, 0, values))
