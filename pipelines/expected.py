"""A store that also has artifacts that are not made yet: what their manifests will say, as far as others ask."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import FileEntry
from stages.artifacts.kinds import KINDS
from stages.artifacts.make import ResolvedWork
from stages.artifacts.manifest import InputRecord, Manifest
from stages.artifacts.stage import Inputs
from stages.artifacts.store import Store
from stages.forecasts.forecast import Cost


class ExpectedStore(Store):
    """A store, read only, and on top of it artifacts that are expected; their files are not there."""

    def __init__(self, root: Path | str) -> None:
        super().__init__(root)
        self._expected: dict[str, Artifact] = {}
        self.approximate: set[str] = set()
        """Those whose metrics follow from samples."""

    def expect(self, work: ResolvedWork, inputs: Inputs, cost: Cost) -> Artifact:
        """An artifact as its cost describes it."""
        manifest = Manifest(
            format_version=KINDS[work.kind].format_version,
            kind=work.kind,
            stage=work.stage,
            id=work.id,
            config=work.config.stored(),
            inputs=work.inputs,
            files={file: _entry(file, size, work, inputs, cost) for file, size in (cost.files or {}).items()},
            metrics=dict(cost.metrics),
            created="",
            seconds=0.0,
            producer={},
            outside_files=work.files,
        ).sealed()
        artifact = Artifact(self, self.folder(work.kind, work.id), manifest)
        self._expected[artifact.reference] = artifact
        if cost.approximate:
            self.approximate.add(artifact.reference)
        return artifact

    def is_expected(self, artifact: Artifact) -> bool:
        return artifact.reference in self._expected

    def open(self, reference: str) -> Artifact:
        return self._expected.get(reference) or super().open(reference)

    def find_input(self, artifact: Artifact, role: str, record: InputRecord) -> Artifact:
        return self._expected.get(record.reference) or super().find_input(artifact, role, record)

    def check_files(
        self, artifact: Artifact, *, every_byte: bool = False, read: Callable[[int], None] = lambda count: None
    ) -> None:
        if not self.is_expected(artifact):
            super().check_files(artifact, every_byte=every_byte, read=read)


def _entry(file: str, size: int, work: ResolvedWork, inputs: Inputs, cost: Cost) -> FileEntry:
    """The digest of a file that is copied is that of the other; of others it is only unlike all others."""
    role = cost.copies.get(file)
    digest: Any = f"{work.reference}/{file}" if role is None else inputs[role].manifest.files[file]["blake2b"]
    return {"bytes": size, "blake2b": digest}
