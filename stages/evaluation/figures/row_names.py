"""Names of a report: of its rows, of their controls, and of files of translations. Free of torch."""

from collections.abc import Mapping
from typing import Any

COUNTING = "counting"
"""Name of the controls in tables."""
SHUT = "spalm, gate shut"
"""The same weights without a neighbour."""
Figures = Mapping[str, Any]

PLAIN, GATED = "plain", "spalm"
"""The first row: a model without memory, or one whose gate lets neighbours into its hidden states."""

TRANSLATIONS, CHANGED = "translations.jsonl", "changed-translations.json"
"""Files of translations, and of the sentences that memory changed most."""


def counting(row: Figures) -> float | None:
    """Perplexity of a row's control, a trigram of all that it may read; None where there is none."""
    found: float | None = (row.get("control") or {}).get("perplexity")
    return found


def counting_on_new_text(row: Figures) -> float | None:
    """The same on the tokens in no paragraph that was read before."""
    found: float | None = (row.get("control") or {}).get("perplexity_on_new_text")
    return found


def baseline_name(report: Figures) -> str:
    """The row of the baseline: `plain (model/0123456789ab)`; with its report where both are of one model."""
    baseline = report["baseline"]
    of = baseline["report"] if baseline["model"] == report["read"]["model"] else baseline["model"]
    return f"{baseline['row']['row']} ({of})"
