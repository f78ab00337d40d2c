"""Figures of reports that give reason for remarks."""

from typing import Any

from stages.reports.remarks.table import REPORT, remarks_on

ROWS = [{"row": "plain", "perplexity": 80.0}, {"row": "knn-lm", "perplexity": 72.0}]
COUNTS = {"tokens": 1000, "words": 500}
METRICS = {"method": "lm", "split": "test", "read": {"model": "model/3"}, "rows": ROWS}
DRAWN = {
    "samples": 10_000,
    "confidence": 0.95,
    "unit": "document",
    "block_tokens": None,
    "units": 57,
}


def codes(report: dict[str, Any]) -> list[str]:
    """Codes of all remarks on a report, the severest first."""
    return [remark.code for remark in remarks_on(REPORT, report)]


def text(report: dict[str, Any], code: str) -> str:
    """The sentence of the one remark with a code."""
    (found,) = (remark.text for remark in remarks_on(REPORT, report) if remark.code == code)
    return found


def trigram(perplexity: float | None, new: float | None = None) -> dict[str, float | None]:
    return {"perplexity": perplexity, "perplexity_on_new_text": new}
