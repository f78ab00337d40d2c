"""Rows of a report: their names, where the baseline's first row is `plain`, too, and their controls."""

from collections.abc import Mapping
from typing import Any

COUNTING = "counting"
"""Name of the controls in tables."""
SHUT = "spalm, gate shut"
"""The same weights without a neighbour."""
Figures = Mapping[str, Any]

PLAIN, GATED = "plain", "spalm"
"""The first row: a model without memory, or one whose gate lets neighbours into its hidden states."""


def counting(row: Figures) -> float | None:
    """Perplexity of a row's control, a trigram of all that it may read; None where there is none."""
    found: float | None = (row.get("control") or {}).get("perplexity")
    return found


def counting_on_new_text(row: Figures) -> float | None:
    """The same on the tokens in no paragraph that was read before."""
    found: float | None = (row.get("control") or {}).get("perplexity_on_new_text")
    return found


def with_model_named(report: Figures) -> Figures:
    """The content of `metrics.json`, wherever its first row stands named with its model; unchanged without a baseline.

    For what people read: the file has the short name.
    """
    if not report.get("baseline"):
        return report
    short = report["rows"][0]["row"]
    return {**_renamed(report, short, f"{short}{_model(report)}"), "baseline": report["baseline"]}


def short_name(report: Figures, name: str) -> str:
    """The name in `metrics.json` of a row of `with_model_named`."""
    return name.removesuffix(_model(report)) if report.get("baseline") else name


def baseline_name(report: Figures) -> str:
    """The row of the baseline: `plain (model/0123456789ab)`; with its report where both are of one model."""
    baseline = report["baseline"]
    of = baseline["report"] if baseline["model"] == report["read"]["model"] else baseline["model"]
    return f"{baseline['row']['row']} ({of})"


def _model(report: Figures) -> str:
    return f" ({report['read']['model']})"


def _renamed(value: Any, short: str, name: str) -> Any:
    if isinstance(value, Mapping):
        return {
            key: name if (key, held) == ("row", short) else _renamed(held, short, name) for key, held in value.items()
        }
    return [_renamed(held, short, name) for held in value] if isinstance(value, list) else value
