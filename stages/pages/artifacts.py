"""Everything that reports were made from: how large it is, how fast it was made, and what came from what."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.charts.data import Box, Chart, Graph, Table
from stages.numbers import duration, number, size
from stages.pages.lineage import Member, in_order
from stages.reports.remarks.gains import trained_with_memory

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
"""The most telling metrics of each kind: names in the manifest, and in words."""


WITH_MEMORY = " (with the memory of its training: not to be compared with that of a plain model)"
"""Remark on a validation perplexity that includes the memory of training."""


@dataclass(frozen=True)
class ArtifactRow:
    """One line of the table; None where the store no longer tells."""

    member: Member
    facts: str
    bytes: int | None
    seconds: float | None
    speed: str
    where: str
    """The device that it was made on."""

    @property
    def size(self) -> str:
        return "" if self.bytes is None else size(self.bytes)

    @property
    def took(self) -> str:
        return "" if self.seconds is None else duration(self.seconds)


def artifact_rows(members: Sequence[Member]) -> list[ArtifactRow]:
    """The members of a lineage, in their order."""
    return [_row(member) for member in members]


def lineage_chart(members: Sequence[Member]) -> Chart:
    """Columns by depth: text to the left, reports to the right."""
    return Chart(
        "lineage",
        "Lineage",
        "What was made from what, from left to right. A line that follows from others is left out; the table of "
        "artifacts has all of them.",
        Graph([_box(member) for member in members]),
        Table(
            ("artifact", "name", "role", "made from"),
            [(m.reference, m.label, role, source) for m in members for role, source in m.inputs.items()],
        ),
    )


def artifacts_table(rows: Sequence[ArtifactRow]) -> Table:
    """The table as numbers."""
    return Table(
        ("artifact", "name", "contents", "bytes", "seconds", "speed", "device", "remark"),
        [
            (
                *(r.member.reference, " ".join(r.member.names), r.facts),
                *(r.bytes, r.seconds, r.speed, r.where),
                r.member.remark,
            )
            for r in rows
        ],
    )


def _row(member: Member) -> ArtifactRow:
    if member.artifact is None:
        return ArtifactRow(member, "", None, None, "", "")
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
            yield f"{number(metrics[name])} {name.replace('_per_second', '/s')}"
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
    look = "report" if member.kind == "report" else ""
    head = member.names[0] if member.names else member.kind
    return Box(member.reference, head, member.reference, tuple(member.inputs.values()), look, label)
