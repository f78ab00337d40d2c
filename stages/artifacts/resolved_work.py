"""A piece of work with all settings resolved: its identity, before anything is made."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic

from stages.artifacts.kinds import KINDS
from stages.artifacts.manifest import (
    InputRecord,
    Manifest,
    identity,
)
from stages.artifacts.stage import (
    C,
    Execution,
    Inputs,
    Stage,
)
from stages.artifacts.store import Store
from stages.errors import ArtifactError
from stages.registry import outside_code


@dataclass(frozen=True)
class ResolvedWork(Generic[C]):
    """A fully resolved piece of work, which an id names."""

    stage: Stage[C]
    config: C
    inputs: Inputs
    files: list[list[str]]
    """Role and digest of each file from outside the store, in order."""

    @property
    def kind(self) -> str:
        return self.stage.kind

    @property
    def records(self) -> dict[str, InputRecord]:
        """Manifest records of the input artifacts, by role."""
        return {role: artifact.record for role, artifact in self.inputs.artifacts.items()}

    @cached_property
    def id(self) -> str:
        version = KINDS[self.kind].format_version
        return identity(self.stage.name, version, self.config, self.records, self.files)

    @property
    def reference(self) -> str:
        return f"{self.kind}/{self.id}"

    def follow(self, execution: Execution) -> bool:
        """Help the process that makes the artifact, if several do it together.

        Returns: whether this process was such a helper.
        """
        work = self.stage.work(self.config)
        return work.follow(self.config, self.inputs, execution)

    @property
    def draft_record(self) -> dict[str, Any]:
        """Fields that a draft must have to be resumed: the id, the version of memlm, and the
        records of the inputs.
        """
        inputs = {role: record.model_dump() for role, record in self.records.items()}
        return {"id": self.id, "memlm": package_version("memlm"), "inputs": inputs}

    def manifest(self, **outcome: Any) -> Manifest:
        """The manifest of the artifact; `outcome`: the fields that are not part of the work."""
        return Manifest(
            format_version=KINDS[self.kind].format_version,
            kind=self.kind,
            stage=self.stage.name,
            id=self.id,
            config=self.config.stored(),
            inputs=self.records,
            outside_files=self.files,
            **outcome,
        ).sealed()


def plan(
    stage: Stage[C], config: C, references: Mapping[str, Any], store: Store, execution: Execution
) -> ResolvedWork[C]:
    """Resolve a piece of work, without doing it."""
    inputs = stage.inputs(config, references, store)
    _require_same_store(inputs, store)
    config = stage.resolve(config, inputs, execution)
    parts = {stage.name, *_words(config.stored()), *stage.parts(config, inputs)}
    files = [[file.role, file.digest] for file in inputs.files]
    files += outside_code(parts)
    return ResolvedWork(stage, config, inputs, files)


def _words(value: Any) -> Iterator[str]:
    """All words in some settings, which include names of parts, even in `external:lambda=NAME`."""
    if isinstance(value, str):
        yield from re.findall(r"[\w-]+", value)
    elif isinstance(value, dict):
        yield from _words(list(value.values()))
    elif isinstance(value, list):
        for element in value:
            yield from _words(element)


def _require_same_store(inputs: Inputs, store: Store) -> None:
    """Raises: ArtifactError for inputs of another store, since lineage is looked up in an
    artifact's own store.
    """
    for artifact in inputs.artifacts.values():
        if artifact.store.root.resolve() != store.root.resolve():
            raise ArtifactError(
                f"{artifact.reference} lies in the store {artifact.store.root}, not in {store.root}; "
                f"what is made from it belongs beside it: --store {artifact.store.root}"
            )


# The metadata of a package is a long file, and every artifact records the versions of several.
@cache
def package_version(package: str) -> str | None:
    """The version of an installed package; None: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
