"""The reports that a reference leads to, and all that they were made from, as far as the store still tells."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stages.artifacts.artifact import Artifact, Home, descendants
from stages.artifacts.kinds import KINDS
from stages.artifacts.manifest import InputRecord
from stages.errors import ArtifactError
from stages.text.tokens import SPLITS

MISSING = "no longer in the store"
OTHER_BYTES = "made again since, with other bytes"


@dataclass(frozen=True)
class Member:
    """One artifact of a lineage."""

    reference: str
    artifact: Artifact | None
    """None: it is gone, and with it what it was made from and with what settings."""
    names: tuple[str, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict)
    """Role -> reference."""
    remark: str = ""

    @property
    def kind(self) -> str:
        return self.reference.partition("/")[0]

    @property
    def id(self) -> str:
        return self.reference.partition("/")[2]

    @property
    def label(self) -> str:
        """Name for people: its name, or its id."""
        return self.names[0] if self.names else self.id

    @property
    def anchor(self) -> str:
        """Where it stands on the page."""
        return self.reference.replace("/", "-")

    def file(self, relative: str) -> Path | None:
        """A file of it, if it has it. Raises: ArtifactError if inputs are verified, and it is damaged."""
        if self.artifact is None or relative not in self.artifact.manifest.files:
            return None
        if self.artifact.store.verifies_inputs:
            self.artifact.store.check_files(self.artifact)
        return self.artifact.file(relative)


def find_reports(references: Sequence[str], store: Home) -> list[Artifact]:
    """The reports named, or made from what is named; each once, its files checked.

    Raises: ArtifactError if there is none, or a reference leads nowhere.
    """
    found: dict[str, Artifact] = {}
    for reference in references:
        artifact = store.open(reference)
        reports = [artifact] if artifact.kind == "report" else _made_from(artifact)
        if not reports:
            raise ArtifactError(
                f"No report in {artifact.store.root} was made from {artifact.reference}; make one: "
                + artifact.advise("evaluate", artifact.reference)
            )
        for report in reports:
            report.store.check_files(report)
            found.setdefault(report.reference, report)
    return list(found.values())


def lineage_of(reports: Sequence[Artifact]) -> dict[str, Member]:
    """The reports and everything above them by reference, each after all it was made from."""
    known = _Known()
    for report in reports:
        known.place(report.record, report.store)
    return known.members


def _made_from(artifact: Artifact) -> list[Artifact]:
    """All reports of its store whose lineage holds an artifact, the oldest first."""
    everything = artifact.store.artifacts()
    made_from_it = descendants(artifact.reference, everything)
    return [a for a in everything if a.kind == "report" and a.reference in made_from_it]


def in_order(splits: Iterable[str]) -> list[str]:
    """Splits as people name them: train, valid, test, then others."""
    return sorted(splits, key=lambda split: SPLITS.index(split) if split in SPLITS else len(SPLITS))


class _Known:
    """Members of a lineage as they are found."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._names: dict[tuple[str, str], dict[str, list[str]]] = {}

    def place(self, recorded: InputRecord, store: Home) -> None:
        """Add an artifact, as those made from it recorded it, and what it was made from."""
        reference = recorded.reference
        if reference in self.members:
            self._placed_again(recorded)
            return
        artifact = self._opened(reference, store)
        if artifact is None:
            self.members[reference] = Member(reference, None, remark=MISSING)
            return
        inputs = artifact.manifest.inputs
        order = sorted(inputs, key=lambda role: list(KINDS).index(inputs[role].kind))
        for record in (inputs[role] for role in order):
            self.place(record, store)
        self.members[reference] = Member(
            reference,
            artifact,
            tuple(self._names_in(store, artifact.kind).get(artifact.id, ())),
            {role: inputs[role].reference for role in order},
            "" if artifact.matches(recorded) else OTHER_BYTES,
        )

    def _placed_again(self, recorded: InputRecord) -> None:
        """Look whether another of those made from a member recorded other bytes."""
        member = self.members[recorded.reference]
        if member.artifact is not None and not member.artifact.matches(recorded):
            self.members[recorded.reference] = replace(member, remark=OTHER_BYTES)

    def _opened(self, reference: str, store: Home) -> Artifact | None:
        try:
            return store.open(reference)
        except ArtifactError:
            return None

    def _names_in(self, store: Home, kind: str) -> dict[str, list[str]]:
        """Id -> names, of a kind."""
        place = str(store.root), kind
        if place not in self._names:
            named: dict[str, list[str]] = {}
            for name, id in store.names(kind).items():
                named.setdefault(id, []).append(name)
            self._names[place] = named
        return self._names[place]
