"""What one report brings to the page: its numbers, and what to call it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.pages.lineage import Member


@dataclass(frozen=True)
class Source:
    """One report: `metrics.json`, the report's own place in the lineage, and the labels that series get."""

    member: Member
    metrics: Mapping[str, Any]
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
        only = ", last words" if self.metrics.get("score") == "last-word" else ""
        return f"{self.corpus} {self.metrics['split']}{only}"

    def series(self, row: str) -> str:
        """What a line or bar of one of its rows is called."""
        return row if self.alone else f"{self.label}: {row}"


def read_sources(reports: Sequence[Artifact], members: Mapping[str, Member]) -> list[Source]:
    """The reports' numbers. Raises ArtifactError for a `metrics.json` that cannot be read."""
    sources = []
    for report in reports:
        metrics = _metrics(report)
        tokens = members.get(metrics["read"]["tokens"])
        corpus = tokens.label if tokens else metrics["read"]["tokens"]
        sources.append(Source(members[report.reference], metrics, corpus, len(reports) == 1))
    return sources


def _metrics(report: Artifact) -> Mapping[str, Any]:
    path = report.file("metrics.json")
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{path} cannot be read ({error}); make the report again: memlm artifacts rm {report.reference}, "
            "then memlm evaluate."
        ) from None
