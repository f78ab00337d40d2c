"""The reports that a reference leads to, and the lineage of these: sizes, times, devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from stages.artifacts.artifact import Artifact, Home, LeaveOut, checked, descendants, refuse
from stages.artifacts.kinds import KINDS
from stages.artifacts.manifest import InputRecord
from stages.charts.data import Box, Chart, Graph, csv_text
from stages.charts.training import measure
from stages.errors import ArtifactError
from stages.numbers import duration, figure_name, number, size
from stages.reports.remarks.gains import trained_with_memory
from stages.text.tokens import SPLITS

RESULTS = ("report", "matrix")
"""Kinds of artifacts that a page reports on."""
MISSING = "no longer in the store"
OTHER_BYTES = "made again since, with other bytes"


@dataclass(frozen=True)
class Member:
    """One artifact of a lineage."""

    reference: str
    artifact: Artifact | None
    """The artifact; None if it was deleted, and with it the record of its inputs and settings."""
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
        """First name of the artifact, or its id."""
        return self.names[0] if self.names else self.id

    @property
    def anchor(self) -> str:
        """Anchor of the artifact on the page."""
        return self.reference.replace("/", "-")

    def file(self, relative: str) -> Path | None:
        """Path of a file of the artifact; None if it has no such file."""
        if self.artifact is None or relative not in self.artifact.manifest.files:
            return None
        return self.artifact.file(relative)


READ = frozenset({"model", "index", "neighbors"})
"""Kinds that `memlm evaluate` reads."""


def next_command(artifact: Artifact) -> str:
    """The command that makes a report from an artifact, or else an artifact from which a report can be made."""
    labels = artifact.kind == "model" and artifact.config.get("model", {}).get("head") is not None
    if artifact.kind in READ:
        return "evaluate-tasks" if labels else "evaluate"
    return "build-index" if artifact.kind == "datastore" else "train"


def find_reports(references: Sequence[str], store: Home, leave_out: LeaveOut = refuse) -> list[Artifact]:
    """The reports named, or made from the artifacts named, each once; their files are checked.

    Args:
        leave_out: called with a report that has an unknown part, if there are other reports.
    Raises: ArtifactError if there is none, a reference leads nowhere, or reports have no figure in common.
    """
    found: dict[str, Artifact] = {}
    for reference in references:
        artifact = store.open(reference)
        reports = [artifact] if artifact.kind in RESULTS else _made_from(artifact)
        if not reports:
            raise ArtifactError(
                f"No report in {artifact.store.root} was made from {artifact.reference}; "
                f"{'make' if artifact.kind in READ else 'on the way to'} one: "
                + artifact.advise(next_command(artifact), artifact.reference)
            )
        for report in reports:
            found.setdefault(report.reference, report)
    if len({report.kind for report in found.values()}) > 1:
        raise ArtifactError(
            f"{', '.join(found)} are of text and of tasks, which have no figure in common: name either."
        )
    measures = {measure(report.metrics) for report in found.values() if report.kind == "matrix"}
    if len(measures) > 1:
        raise ArtifactError(f"{', '.join(found)} have {' and '.join(sorted(measures))}: name those of one measure.")
    return checked(found.values(), leave_out)


def lineage_of(reports: Sequence[Artifact]) -> dict[str, Member]:
    """The reports and all their ancestors, by reference; each comes after its inputs."""
    members: dict[str, Member] = {}
    for report in reports:
        _place(report.record, report.store, members)
    return members


def _place(recorded: InputRecord, store: Home, members: dict[str, Member]) -> None:
    """Add an artifact, as recorded by the artifacts made from it, and its inputs."""
    reference = recorded.reference
    if reference not in members:
        members[reference] = _opened(reference, store, members)
    artifact = members[reference].artifact
    if artifact is not None and not artifact.matches(recorded):
        members[reference] = replace(members[reference], remark=OTHER_BYTES)


def _opened(reference: str, store: Home, members: dict[str, Member]) -> Member:
    try:
        artifact = store.open(reference)
    except ArtifactError:
        return Member(reference, None, remark=MISSING)
    inputs = artifact.manifest.inputs
    order = sorted(inputs, key=lambda role: list(KINDS).index(inputs[role].kind))
    for role in order:
        _place(inputs[role], store, members)
    names = tuple(name for name, id in store.names(artifact.kind).items() if id == artifact.id)
    return Member(reference, artifact, names, {role: inputs[role].reference for role in order})


def _made_from(artifact: Artifact) -> list[Artifact]:
    """All reports of the store that descend from an artifact, the oldest first."""
    everything = artifact.store.artifacts()
    made_from_it = descendants(artifact.reference, everything)
    return [a for a in everything if a.kind in RESULTS and a.reference in made_from_it]


def in_order(splits: Iterable[str]) -> list[str]:
    """Splits in the usual order: train, valid, test, then others."""
    return sorted(splits, key=lambda split: SPLITS.index(split) if split in SPLITS else len(SPLITS))


SPEEDS = ("tokens_per_second", "segments_per_second")
FACTS = {
    "model": (
        *(("parameters", "parameters"), ("steps", "steps"), ("passes", "passes over train")),
        ("valid_perplexity", "valid perplexity"),
    ),
    "datastore": (("rows", "keys"), ("dim", "wide")),
    "index": (("rows", "keys"), ("bytes_per_key", "bytes a key")),
    "neighbors": (("k", "neighbours a token"),),
    "batches": (("segments", "segments"), ("token_overlap", "token overlap")),
    "report": (("tokens", "tokens"), ("perplexity", "perplexity")),
}
"""The most informative metrics of each kind: names in the manifest, and labels."""


WITH_MEMORY = " (with the memory of its training: not to be compared with that of a plain model)"
"""Remark on a validation perplexity that includes the memory of training."""


class ArtifactRow(NamedTuple):
    """One line of the table; figures are None if the artifact was deleted."""

    member: Member
    facts: str = ""
    bytes: int | None = None
    seconds: float | None = None
    speed: str = ""
    where: str = ""
    """The device on which it was made."""

    @property
    def size(self) -> str:
        return "" if self.bytes is None else size(self.bytes)

    @property
    def took(self) -> str:
        return "" if self.seconds is None else duration(self.seconds)


def lineage_chart(members: Sequence[Member]) -> Chart:
    """Graph of the lineage: texts on the left, reports on the right."""
    return Chart(
        "lineage",
        "Lineage",
        "What was made from what, from left to right. A line that follows from others is left out; the table of "
        "artifacts has all of them.",
        Graph([_box(member) for member in members]),
    )


def artifacts_csv(rows: Sequence[ArtifactRow]) -> str:
    """The table as CSV."""
    columns = ("artifact", "name", "contents", "bytes", "seconds", "speed", "device", "remark")
    named = [(r, r.member.reference, " ".join(r.member.names)) for r in rows]
    return csv_text(
        [columns, *((*of, r.facts, r.bytes, r.seconds, r.speed, r.where, r.member.remark) for r, *of in named)]
    )


def artifact_row(member: Member) -> ArtifactRow:
    """The line of a member of a lineage."""
    if member.artifact is None:
        return ArtifactRow(member)
    manifest = member.artifact.manifest
    facts = ", ".join(_facts(member.kind, manifest.metrics))
    if "valid_perplexity" in manifest.metrics and trained_with_memory(member.artifact.config.get("method", "")):
        facts += WITH_MEMORY
    where = str(manifest.producer.get("device", ""))
    return ArtifactRow(member, facts, manifest.bytes, manifest.seconds, ", ".join(_speeds(manifest.metrics)), where)


def _facts(kind: str, metrics: Mapping[str, Any]) -> Iterator[str]:
    if kind == "tokens":
        yield f"{number(metrics['vocabulary_size'])} types"
        yield from (f"{split} {number(metrics['splits'][split]['tokens'])}" for split in in_order(metrics["splits"]))
    for name, words in FACTS.get(kind, ()):
        if isinstance(metrics.get(name), int | float):
            yield f"{words} {number(metrics[name])}"


def _speeds(metrics: Mapping[str, Any]) -> Iterator[str]:
    for name in SPEEDS:
        if isinstance(metrics.get(name), int | float):
            yield f"{number(metrics[name])} {figure_name(name)}"
    queries = metrics.get("queries_per_second")
    if isinstance(queries, Mapping):
        yield from (f"{number(queries[k])} queries/s at k {int(k):,}" for k in sorted(queries, key=int))
    for split, figures in (metrics.get("splits") or {}).items():
        if "queries_per_second" in figures:
            yield f"{split} {number(figures['queries_per_second'])} queries/s"


def _box(member: Member) -> Box:
    if member.artifact is None:
        return Box(member.reference, f"{member.kind}, gone", member.reference, (), "missing", member.remark)
    label = f"{member.reference} {', '.join(member.names)} {size(member.artifact.manifest.bytes)}"
    look = "report" if member.kind in RESULTS else ""
    head = member.names[0] if member.names else member.kind
    return Box(member.reference, head, member.reference, tuple(member.inputs.values()), look, label)
