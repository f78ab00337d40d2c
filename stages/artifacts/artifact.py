"""A finished artifact: read-only, checked when it is opened, and traceable to all of its inputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from stages.artifacts.kinds import KINDS, USED_UP
from stages.artifacts.manifest import InputRecord, Manifest, UncheckedArtifact
from stages.artifacts.references import MANIFEST, REMOVE, advised
from stages.errors import ArtifactError, UsageError, content_of

if TYPE_CHECKING:
    from stages.artifacts.reading import CheckedGroup


class Home(Protocol):
    """The part of its store that an artifact needs."""

    root: Path

    def open(self, reference: str, *kinds: str) -> Artifact:
        """The artifact of a reference; its files are not checked."""

    def check_files(self, artifact: Artifact, *, every_byte: bool = False) -> None:
        """Compare an artifact's files with its manifest."""

    def artifacts(self, *kinds: str) -> list[Artifact]:
        """All finished artifacts, or those of some kinds."""

    def names(self, kind: str) -> dict[str, str]:
        """Names of artifacts of a kind, and their ids."""

    def name(self, artifact: Artifact, name: str) -> None:
        """Give an artifact the name `kind/name`."""


class MissingRole(ArtifactError, LookupError):
    """No ancestor of an artifact has a role: its manifest lost an input, or the artifact does not
    fit the command.
    """


class Artifact:
    """One folder `kind/id` of a store. `Store.get` returns it with its files checked."""

    def __init__(self, store: Home, path: Path, manifest: Manifest) -> None:
        self.store = store
        self.path = path
        self.manifest = manifest
        self.kind = manifest.kind
        self.id = manifest.id
        self.reference = f"{self.kind}/{self.id}"
        self.metrics = manifest.metrics
        """Metrics that the stage recorded."""
        self.digest = manifest.digest
        """Digest of its content, which artifacts made from it record."""
        self.record = manifest.record
        self._inputs: dict[str, Artifact] = {}

    def __repr__(self) -> str:
        return f"Artifact({self.reference})"

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved settings of the work; settings that were added later have their defaults."""
        with suppress(ValidationError, UsageError):
            return self.manifest.full_config()
        return self.manifest.config  # this version cannot read it, so `Store.get` refuses it

    @property
    def bytes(self) -> int:
        """Size of all its files, the manifest included."""
        return self.manifest.bytes + (self.path / MANIFEST).stat().st_size

    def matches(self, record: InputRecord | None) -> bool:
        """Whether a record names this artifact and has the digest of its bytes."""
        return record == self.record

    @property
    def parents(self) -> set[str]:
        """References of its direct inputs."""
        return {record.reference for record in self.manifest.inputs.values()}

    @property
    def needed(self) -> set[str]:
        """References of inputs that are needed to read it; the others may be removed."""
        return {
            record.reference for role, record in self.manifest.inputs.items() if role not in USED_UP
        }

    def input(self, role: str) -> Artifact:
        """The input in the given role; it is checked when it is first requested.

        Raises: ArtifactError if it is gone, damaged, or has other bytes than those recorded.
        """
        if role not in self._inputs:
            self._inputs[role] = self._find_input(role)
        return self._inputs[role]

    def _find_input(self, role: str) -> Artifact:
        if role not in self.manifest.inputs:
            roles = ", ".join(self.manifest.inputs) or "none"
            raise ArtifactError(
                f"{self.reference} was made without {role!r}; it was made from: {roles}."
            )
        record = self.manifest.inputs[role]
        try:
            artifact = self.store.open(record.reference)
        except ArtifactError:
            if (self.store.root / record.reference / MANIFEST).is_file():
                raise
            raise ArtifactError(
                f"{self.reference} was made from {record.reference} (its {role}), which is not in {self.store.root}; "
                f"make that again with memlm {KINDS[record.kind].command}."
            ) from None
        self.store.check_files(artifact)
        if not artifact.matches(record):
            raise ArtifactError(
                f"{self.reference} was made from {artifact.reference} when that had other bytes than now; "
                f"make it again: {self.advise(*REMOVE, self.reference)}, then memlm {self.manifest.stage}."
            )
        return artifact

    def find(self, role: str) -> Artifact:
        """The nearest ancestor in the given role: an input of this artifact, or of one of its
        ancestors.

        Raises: MissingRole if there is none; the errors of `input`.
        """
        if role in self.manifest.inputs:
            return self.input(role)
        for direct in (role for role in self.manifest.inputs if role not in USED_UP):
            try:
                return self.input(direct).find(role)
            except MissingRole:
                continue
        raise MissingRole(
            f"Nothing that {self.reference} was made from has the role {role!r}; make it again: "
            f"{self.advise(*REMOVE, self.reference)}, then memlm {self.manifest.stage}."
        )

    def advise(self, *words: str) -> str:
        """A command line for the store of this artifact."""
        return advised(self.store.root, *words)

    def damaged(self, problem: str) -> ArtifactError:
        """The error for a damaged artifact, with advice on how to repair it."""
        return ArtifactError(
            f"{self.reference} is damaged: {problem}. Make it again: "
            f"{self.advise(*REMOVE, self.reference)}, then memlm {self.manifest.stage}."
        )

    def file(self, relative: str | Path) -> Path:
        """Path of a file of this artifact. Raises ArtifactError if its manifest does not list it."""
        if str(relative) not in self.manifest.files:
            raise ArtifactError(f"{self.reference} has no file {relative}.")
        return self.path / relative

    def zarr(self, name: str) -> CheckedGroup:
        """A read-only Zarr group of this artifact, such as `tokens.zarr`; its arrays are checked
        against the schema.
        """
        from stages.artifacts.reading import CheckedGroup, opened

        file = self.file(f"{name}/zarr.json")
        with content_of(file):
            return CheckedGroup(self, name, opened(self.path / name, "", file))

    def json(self, name: str) -> Any:
        """Content of a JSON file of this artifact. Raises: ArtifactError if the file is not JSON."""
        with content_of(self.file(name)):
            return json.loads(self.file(name).read_text("utf-8"))


def ancestors(references: Iterable[str], artifacts: Iterable[Artifact]) -> set[str]:
    """These references, and those of all ancestors, according to the given artifacts."""
    return reached(references, {artifact.reference: artifact.parents for artifact in artifacts})


def needed_for(references: Iterable[str], artifacts: Iterable[Artifact]) -> set[str]:
    """These references, and those of all artifacts needed to read them, according to the given
    artifacts.
    """
    return reached(references, {artifact.reference: artifact.needed for artifact in artifacts})


LeaveOut = Callable[[Artifact, ArtifactError], None]
"""Callback for an artifact that is left out, and the reason."""


def checked(
    artifacts: Iterable[Artifact], leave_out: LeaveOut | None = None, roles: Iterable[str] = ()
) -> list[Artifact]:
    """Check artifacts, and leave out those with a part that is not known here.

    Args:
        leave_out: receives each artifact that is left out; None: none may be.
        roles: roles of inputs that are checked, too.
    Raises: ArtifactError for a damaged artifact, or if all are left out.
    """
    sound: list[Artifact] = []
    unknown: list[tuple[Artifact, ArtifactError]] = []
    for artifact in artifacts:
        try:
            artifact.store.check_files(artifact)
            for role in roles:
                artifact.input(role)
            sound.append(artifact)
        except UncheckedArtifact as error:
            unknown.append((artifact, error))
    for artifact, why in unknown:
        if leave_out is None or not sound:
            raise why
        leave_out(artifact, why)
    return sound


def descendants(reference: str, artifacts: Iterable[Artifact]) -> set[str]:
    """A reference, and those of all given artifacts that were made from it, directly or indirectly."""
    children: dict[str, set[str]] = {}
    for artifact in artifacts:
        for parent in artifact.parents:
            children.setdefault(parent, set()).add(artifact.reference)
    return reached([reference], children)


def reached(references: Iterable[str], ways: Mapping[str, set[str]]) -> set[str]:
    """All nodes of a graph that can be reached from these references; `ways`: the neighbours of
    each node.
    """
    nodes: set[str] = set()
    waiting = set(references)
    while waiting:
        reference = waiting.pop()
        nodes.add(reference)
        waiting |= ways.get(reference, set()) - nodes
    return nodes
