"""Means over seeds, where reports on a page differ by the seed of training alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.evaluation.figures.seed_groups import compare_groups, seed_groups, text_of

CONFIDENCE = 0.95


@dataclass(frozen=True)
class OverSeeds:
    """One row of a report, over all the reports that differ from it by their seed."""

    first: str
    """The first of these reports."""
    runs: int
    perplexity: float
    """The mean."""
    deviation: float
    change: float | None
    """Mean change of perplexity against the first row of the first group, run by run; None for that row itself."""
    interval: Sequence[float] | None
    """Interval of that mean."""


Means = Mapping[tuple[str, str], OverSeeds]
"""By report and row, of reports that are there with several seeds."""


def seed_tables(reports: Sequence[Artifact]) -> list[dict[str, Any]]:
    """Compare groups of seeds on each text; empty where no model was trained with several seeds."""
    texts: dict[tuple[str, str, str], list[Artifact]] = {}
    try:
        for report in reports:
            texts.setdefault(text_of(report), []).append(report)
        return [
            compare_groups(held, CONFIDENCE)
            for held in texts.values()
            if any(len(group) > 1 for group in seed_groups(held))
        ]
    except ArtifactError:  # models or tokens are gone: the page says so, and shows what is left
        return []


def means_over_seeds(tables: Sequence[Mapping[str, Any]]) -> Means:
    """Means over seeds, for the rows of each report."""
    return {
        (report, row["row"]): _over_seeds(group, row)
        for table in tables
        for group in table["groups"]
        if len(group["reports"]) > 1
        for row in group["rows"]
        for report in group["reports"]
    }


def _over_seeds(group: Mapping[str, Any], row: Mapping[str, Any]) -> OverSeeds:
    perplexity, change = row["perplexity"], row["change"] or {"mean": None, "interval": None}
    return OverSeeds(
        group["reports"][0],
        perplexity["n"],
        perplexity["mean"],
        perplexity["deviation"],
        change["mean"],
        change["interval"],
    )
