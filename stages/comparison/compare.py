"""Which of two reports is better, by how much, how surely, and where; and a report against its baseline."""

from typing import Any

from stages.artifacts.artifact import Artifact
from stages.comparison.by_token import compare_tokens
from stages.comparison.comparability import same_tokens
from stages.comparison.settings import ComparisonSettings
from stages.evaluation.figures.row_names import counting
from stages.evaluation.figures.token_scores import TokenScores, has_scores, open_scores
from stages.reporting import Progress, unheard


def compare(a: Artifact, b: Artifact, settings: ComparisonSettings, progress: Progress = unheard) -> dict[str, Any]:
    """Compare report B with report A: token by token, or by text where only their tokenizers differ.

    Differences are of B minus A in negative log-likelihood (nats): negative where B is better.

    Args:
        a, b: reports with token scores.
        settings: what is compared, and how the bootstrap draws.
        progress: hears how many tokens are read, and how often units are drawn.
    Returns: JSON; its fields are in docs/how-to/compare.md.
    Raises: ArtifactError if one has no token scores, or they are of other tokens and another text.
    """
    scores_a, scores_b = (open_scores(report, settings.reading) for report in (a, b))
    if same_tokens(scores_a, scores_b):
        from stages.comparison.by_token import compare_tokens as compare_scores
    else:
        from stages.comparison.by_text import compare_text as compare_scores
    return {
        "a": _report_facts(scores_a),
        "b": _report_facts(scores_b),
        "reading": settings.reading,
        "split": scores_a.split,
        "score": scores_a.counted,
        **compare_scores(scores_a, scores_b, settings, progress),
    }


def _report_facts(scores: TokenScores) -> dict[str, Any]:
    rows = {row["row"]: row for row in scores.report.metrics["rows"]}
    row = rows[scores.row]
    return {
        "reference": scores.report.reference,
        "model": scores.report.input("model").reference,
        "method": scores.report.metrics["method"],
        "row": scores.row,
        "tokens": scores.tokens.reference,
        "counting": counting(row),
        **{name: row[name] for name in ("nll", "perplexity", "bits_per_character", "word_perplexity")},
    }


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
