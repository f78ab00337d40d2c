"""The reports that a reference leads to, and the lineage of these: sizes, times, devices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stages.artifacts.artifact import Artifact, Home, LeaveOut, checked, descendants
from stages.artifacts.kinds import COMMANDS, KINDS
from stages.artifacts.manifest import InputRecord
from stages.charts.data import Box, Chart, Graph, csv_text
from stages.charts.training import measure
from stages.errors import ArtifactError
from stages.numbers import figure_name, number
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


READ = frozenset(COMMANDS["evaluate"].source)
"""Kinds that `memlm evaluate` reads."""


def next_command(artifact: Artifact) -> str:
    """The command that makes a report from an artifact, or else an artifact from which a report can
    be made.
    """
    labels = artifact.kind == "model" and artifact.config.get("model", {}).get("head") is not None
    if artifact.kind in READ:
        return "evaluate-tasks" if labels else "evaluate"
    return "build-index" if artifact.kind == "datastore" else "train"


def find_reports(
    references: Sequence[str], store: Home, leave_out: LeaveOut | None = None
) -> list[Artifact]:
    """The reports named, or made from the artifacts named, each once; their files are checked.

    Args:
        leave_out: called with a report that has an unknown part, if there are other reports.
    Raises: ArtifactError if there is none, a reference leads nowhere, or reports have no figure in
    common.
    """
    artifacts: dict[str, Artifact] = {}
    for reference in references:
        artifact = store.open(reference)
        reports = [artifact]
        if artifact.kind not in RESULTS:
            everything = artifact.store.artifacts()
            made_from_it = descendants(artifact.reference, everything)
            reports = [
                descendant
                for descendant in everything
                if descendant.kind in RESULTS and descendant.reference in made_from_it
            ]
        if not reports:
            raise ArtifactError(
                f"No report in {artifact.store.root} was made from {artifact.reference}; "
                f"{'make' if artifact.kind in READ else 'on the way to'} one: "
                + artifact.advise(next_command(artifact), artifact.reference)
            )
        for report in reports:
            artifacts.setdefault(report.reference, report)
    if len({report.kind for report in artifacts.values()}) > 1:
        raise ArtifactError(
            f"{', '.join(artifacts)} are of text and of tasks, which have no figure in common: name either."
        )
    measures = {measure(report.metrics) for report in artifacts.values() if report.kind == "matrix"}
    if len(measures) > 1:
        raise ArtifactError(
            f"{', '.join(artifacts)} have {' and '.join(sorted(measures))}: name those of one measure."
        )
    return checked(artifacts.values(), leave_out)


def lineage_of(reports: Sequence[Artifact]) -> dict[str, Member]:
    """The reports and all their ancestors, by reference; each comes after its inputs."""
    members: dict[str, Member] = {}
    for report in reports:
        _place(report.record, report.store, members)
    return members


def _place(recorded: InputRecord, store: Home, members: dict[str, Member]) -> None:
    """Add an artifact, as recorded by the artifacts made from it, after its inputs."""
    reference = recorded.reference
    if reference not in members:
        try:
            opened = store.open(reference)
        except ArtifactError:
            members[reference] = Member(reference, None, remark=MISSING)
            return

        # inputs in the order in which a pipeline makes them
        inputs = opened.manifest.inputs
        kinds = list(KINDS)
        order = sorted(inputs, key=lambda role: kinds.index(inputs[role].kind))
        for role in order:
            _place(inputs[role], store, members)

        references = {role: inputs[role].reference for role in order}
        names = tuple(name for name, id in store.names(opened.kind).items() if id == opened.id)
        members[reference] = Member(reference, opened, names, references)

    # one record that differs from what is stored is enough for the remark
    artifact = members[reference].artifact
    if artifact is not None and not artifact.matches(recorded):
        members[reference] = replace(members[reference], remark=OTHER_BYTES)


def in_order(splits: Iterable[str]) -> list[str]:
    """Splits in the usual order: train, valid, test, then others."""
    return sorted(splits, key=lambda split: SPLITS.index(split) if split in SPLITS else len(SPLITS))


SPEEDS = ("tokens_per_second", "segments_per_second")

WITH_MEMORY = " (with the memory of its training: not to be compared with that of a plain model)"
"""Remark on a validation perplexity that includes the memory of training."""


def lineage_chart(members: Iterable[Member]) -> Chart:
    """Graph of the lineage: texts on the left, reports on the right."""
    boxes = []
    for member in members:
        head = f"{member.kind}, gone"
        look = "missing"
        if member.artifact is not None:
            head = member.names[0] if member.names else member.kind
            look = "report" if member.kind in RESULTS else ""
        boxes.append(
            Box(member.reference, head, member.reference, tuple(member.inputs.values()), look)
        )
    return Chart(
        "lineage",
        "Lineage",
        "What was made from what, from left to right. A line that follows from others is left out; the table of "
        "artifacts has all of them.",
        Graph(boxes),
    )


def artifacts_csv(members: Iterable[Member]) -> str:
    """The table of artifacts as CSV; figures are empty if the artifact was deleted."""
    lines: list[Sequence[Any]] = [
        ("artifact", "name", "contents", "bytes", "seconds", "speed", "device", "remark"),
    ]
    for member in members:
        figures: Sequence[Any] = ("", None, None, "", "")
        if member.artifact is not None:
            manifest = member.artifact.manifest
            figures = (
                facts(member.artifact),
                manifest.bytes,
                manifest.seconds,
                speeds(manifest.metrics),
                device(member.artifact),
            )
        lines.append((member.reference, " ".join(member.names), *figures, member.remark))
    return csv_text(lines)


def device(artifact: Artifact) -> str:
    """The device on which an artifact was made."""
    return str(artifact.manifest.producer.get("device", ""))


def facts(artifact: Artifact) -> str:
    """The most informative metrics of an artifact: `108,312 keys, 128 wide`."""
    metrics = artifact.metrics
    words = []
    for name, label in KINDS[artifact.kind].facts:
        value = _metric(metrics, name)
        if _is_number(value):
            words.append(f"{label} {number(value)}")
    text = ", ".join(words)

    method = artifact.config.get("method", "")
    if "valid_perplexity" in metrics and trained_with_memory(method):
        text += WITH_MEMORY
    return text


def _metric(metrics: Mapping[str, Any], name: str) -> Any:
    """A metric by its dotted name; None if there is none."""
    value: Any = metrics
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def speeds(metrics: Mapping[str, Any]) -> str:
    """Everything that an artifact says of the speed of its making: `11,255 tokens/s`."""
    rows = [
        f"{number(metrics[name])} {figure_name(name)}"
        for name in SPEEDS
        if _is_number(metrics.get(name))
    ]
    queries = metrics.get("queries_per_second")
    if isinstance(queries, Mapping):
        rows += [
            f"{number(queries[k])} queries/s at k {int(k):,}" for k in sorted(queries, key=int)
        ]
    for split, figures in (metrics.get("splits") or {}).items():
        if "queries_per_second" in figures:
            rows.append(f"{split} {number(figures['queries_per_second'])} queries/s")
    return ", ".join(rows)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
