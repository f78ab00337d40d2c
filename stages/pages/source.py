"""What one report brings to the page: its numbers, and what to call it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart
from stages.charts.reported import Report, scored
from stages.errors import ArtifactError
from stages.pages.lineage import Member

METRICS = "metrics.json"


@dataclass(frozen=True)
class Source:
    """One report: its files of numbers, its own place in the lineage, and what tells it from others."""

    member: Member
    metrics: Mapping[str, Any]
    files: Mapping[str, Any]
    """Content of the other JSON files, by their names."""
    corpus: str
    """Name or id of the tokens that were scored."""
    alone: bool
    """Whether it is the page's only report, so that its name says nothing."""

    @property
    def label(self) -> str:
        return self.member.label

    @property
    def scored(self) -> str:
        """What was scored: `wikitext-2 test`, `lambada test, last words`."""
        return f"{self.corpus} {scored(self.metrics)}"

    @property
    def report(self) -> Report:
        """The same for charts of several reports."""
        return Report(self.metrics, self.scored, "" if self.alone else self.label, self.member.reference)

    def labelled(self, charts: Sequence[Chart]) -> list[Chart]:
        """Charts of this report alone, told from those of others."""
        return list(charts) if self.alone else [chart.labelled(self.label) for chart in charts]


def read_sources(reports: Sequence[Artifact], members: Mapping[str, Member]) -> list[Source]:
    """The reports' numbers. Raises ArtifactError for a file that cannot be read."""
    sources = []
    for report in reports:
        metrics = _read(report, METRICS)
        others = [
            name for name in report.manifest.files if "/" not in name and name.endswith(".json") and name != METRICS
        ]
        files = {name: _read(report, name) for name in others}
        tokens = members.get(metrics["read"]["tokens"])
        corpus = tokens.label if tokens else metrics["read"]["tokens"]
        sources.append(Source(members[report.reference], metrics, files, corpus, len(reports) == 1))
    return sources


def _read(report: Artifact, name: str) -> Mapping[str, Any]:
    path = report.file(name)
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{path} cannot be read ({error}); make the report again: memlm artifacts rm {report.reference}, "
            "then memlm evaluate."
        ) from None
