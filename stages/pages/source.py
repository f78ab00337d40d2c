"""A report on the page: its numbers and its name."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart
from stages.charts.reported import Report, scored
from stages.pages.lineage import Member
from stages.reports.fields import COMPARED
from stages.reports.remarks import Remark
from stages.reports.remarks.table import REPORT, remarks_on
from stages.text.documents import names_file, read_runs

METRICS = "metrics.json"
LongerRemarks = Callable[[Artifact], Sequence[Remark]]
"""Finds remarks that need more than the report's own numbers, such as a comparison with its
baseline.
"""


@dataclass(frozen=True)
class ReportSource:
    """One report: its figures, its place in the lineage, and the labels that distinguish it from
    others.
    """

    member: Member
    metrics: Mapping[str, Any]
    """The content of `metrics.json`."""
    files: Mapping[str, Any]
    """Content of the other JSON files, by file name."""
    label: str
    """Name of the report, or else its method and first memory."""
    corpus: str
    """Name of the scored tokens; empty if they have none, and are the only ones on the page."""
    alone: bool
    """Whether it is the page's only report, so that its name says nothing."""
    remarks: Sequence[Remark]
    """Remarks on its figures."""

    @property
    def scored(self) -> str:
        """The scored text: `wikitext-2 test`, `lambada test, last words`, `test`."""
        return f"{self.corpus} {scored(self.metrics)}".lstrip()

    @property
    def text(self) -> str:
        """Identity of the scored text: reference of the tokens, and split."""
        return f"{self.metrics['read']['tokens']} {scored(self.metrics)}"

    @property
    def own_text(self) -> str:
        """`--exclude window:128` if a datastore of the scored text was read, whose gain is not
        real; else empty.
        """
        exclude = self.metrics.get("exclude")
        return f"--exclude {exclude}" if exclude else ""

    @property
    def report(self) -> Report:
        """The report, as charts of several reports read it."""
        return Report(self.metrics, self.scored, "" if self.alone else self.label)

    def labelled(self, charts: Iterable[Chart]) -> list[Chart]:
        """Charts of this report alone, labelled if there are other reports."""
        return list(charts) if self.alone else [chart.labelled(self.label) for chart in charts]


def read_sources(
    reports: Sequence[Artifact], members: Mapping[str, Member], more: LongerRemarks
) -> list[ReportSource]:
    """The reports' numbers. Raises ArtifactError for a file that cannot be read."""
    read = [(report, members[report.reference], report.json(METRICS)) for report in reports]
    labels = []
    counts = Counter[str]()
    for _, member, metrics in read:
        # A report without a name is `lm, knn-lm`; of equal labels the second becomes `a (2)`.
        rows = [row["row"] for row in metrics["rows"] if row["row"] not in COMPARED]
        label = (
            member.names[0]
            if member.names
            else ", ".join(dict.fromkeys([metrics["method"], *rows[1:2]]))
        )
        counts[label] += 1
        labels.append(label if counts[label] == 1 else f"{label} ({counts[label]})")
    corpora = _corpora([metrics for *_, metrics in read], members)
    return [
        ReportSource(
            member,
            metrics,
            {
                name: report.json(name)
                for name in report.manifest.files
                if "/" not in name and name.endswith(".json") and name != METRICS
            },
            label,
            corpora[metrics["read"]["tokens"]],
            len(reports) == 1,
            [*remarks_on(REPORT, metrics), *more(report)],
        )
        for (report, member, metrics), label in zip(read, labels, strict=True)
    ]


def shared_remarks(sources: Sequence[ReportSource]) -> list[tuple[Sequence[str], Remark]]:
    """Each remark once, with the labels of its reports; without labels if it concerns all of them."""
    labels_of_remark: dict[Remark, list[str]] = {}
    for source in sources:
        for remark in source.remarks:
            labels_of_remark.setdefault(remark, []).append(source.label)

    shared: list[tuple[Sequence[str], Remark]] = []
    for remark, labels in labels_of_remark.items():
        is_of_all = len(labels) == len(sources)
        shared.append(([] if is_of_all else labels, remark))
    return shared


def _corpora(read: Sequence[Mapping[str, Any]], members: Mapping[str, Member]) -> dict[str, str]:
    """Names of scored tokens, by reference; ids if two have the same name."""
    names = {}
    for metrics in read:
        reference = metrics["read"]["tokens"]
        names[reference] = _corpus(members.get(reference), metrics["split"])

    counts = Counter(names.values())
    return {
        reference: name if counts[name] == 1 else reference for reference, name in names.items()
    }


def _corpus(member: Member | None, split: str) -> str:
    """The name of tokens, or of the file or record that a split comes from; empty if there are none
    or several.
    """
    if member is None or member.artifact is None:
        return ""
    if member.names:
        return member.names[0]
    path = member.file(names_file(split))
    if path is None or not path.is_file():
        return ""
    names = {run.name for run in read_runs(path)}
    return (names.pop() or "") if len(names) == 1 else ""
