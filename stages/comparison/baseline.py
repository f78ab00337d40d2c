"""A report against the one whose row stands above its own."""

from typing import Any

from stages.artifacts.artifact import Artifact
from stages.comparison.by_token import compare_tokens
from stages.comparison.settings import ComparisonSettings
from stages.evaluation.figures.token_scores import has_scores, open_scores


def against_baseline(report: Artifact) -> dict[str, Any] | None:
    """The first memory row of a report compared, token by token, with the model alone of its baseline.

    Returns: as of `compare_tokens`, with the names of both `rows`; None where there is no baseline, or one of the
        two reports has no token scores.
    """
    if "baseline" not in report.manifest.inputs:
        return None
    baseline = report.input("baseline")
    if not (has_scores(baseline) and has_scores(report)):
        return None
    scores = open_scores(baseline, "model"), open_scores(report, "final")
    return {"rows": [one.row for one in scores], **compare_tokens(*scores, ComparisonSettings(most=0, around=0))}
