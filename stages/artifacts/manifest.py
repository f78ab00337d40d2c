"""The manifest: what an artifact is, what made it, and the digest of every file in it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from stages.artifacts.checksums import FileEntry, table_digest
from stages.artifacts.kinds import KINDS
from stages.errors import ArtifactError

MANIFEST = "manifest.json"


class InputRecord(BaseModel):
    """An artifact that another was made from: its id names the work, its digest reaches the bytes."""

    model_config = ConfigDict(frozen=True)

    kind: str
    id: str
    digest: str

    @property
    def reference(self) -> str:
        return f"{self.kind}/{self.id}"


class Manifest(BaseModel):
    """Content of `manifest.json`, the last file to be written into an artifact."""

    model_config = ConfigDict(frozen=True)

    format_version: int
    kind: str
    id: str
    config: dict[str, Any]
    inputs: dict[str, InputRecord]
    files: dict[str, FileEntry]
    metrics: dict[str, Any]
    created: str
    seconds: float
    producer: dict[str, Any]

    @property
    def digest(self) -> str:
        """What other artifacts record of this one's bytes."""
        return table_digest(self.files)

    @property
    def bytes(self) -> int:
        """Size of all files, the manifest apart."""
        return sum(entry["bytes"] for entry in self.files.values())

    def dumps(self) -> str:
        """The manifest as the text of its file."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check the manifest of an artifact's folder.

        Raises: ArtifactError if it is missing, unreadable, or of a format that this version does not read.
        """
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            hint = f"; {_mend(folder)}" if folder.parent.name in KINDS else ""
            raise ArtifactError(f"{folder} has no {MANIFEST}: it is no artifact, or it was damaged{hint}.") from None
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ArtifactError(f"{path} is damaged ({error}); {_mend(folder)}.") from None
        if isinstance(content, Mapping):
            _check_format(content, folder)
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ArtifactError(f"{path} is damaged ({where}: {first['msg']}); {_mend(folder)}.") from None


def _check_format(content: Mapping[str, Any], folder: Path) -> None:
    kind, version = content.get("kind"), content.get("format_version")
    if kind not in KINDS:
        raise ArtifactError(f"{folder} is of a kind that this memlm does not know: {kind!r}.")
    known = KINDS[kind].format_version
    if not isinstance(version, int) or version > known:
        maker = content.get("producer", {}).get("memlm", "unknown")
        raise ArtifactError(
            f"{folder} has format {version} of {kind!r}, written by memlm {maker}; this memlm reads up to {known}. "
            "Upgrade memlm."
        )
    if version < known:
        raise ArtifactError(
            f"{folder} has format {version} of {kind!r}, older than {known}, which this memlm reads; {_mend(folder)}."
        )


def _mend(folder: Path) -> str:
    command = KINDS[folder.parent.name].command if folder.parent.name in KINDS else "its command"
    reference = f"{folder.parent.name}/{folder.name}"
    return f"remove it with memlm artifacts rm --force {reference} and make it again with memlm {command}"
