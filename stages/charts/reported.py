"""One report, as charts read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Report:
    """The content of `metrics.json`, and what tells it from others in one chart."""

    metrics: Mapping[str, Any]
    scored: str
    """The scored text: `test`, `wikitext-2 test`, `lambada test, last words`."""
    label: str = ""
    """Empty: it is alone."""
    reference: str = ""

    def series(self, row: str) -> str:
        """Name of the line of one of its rows."""
        return f"{self.label}: {row}" if self.label else row


def measure(metrics: Mapping[str, Any]) -> str:
    """The tokens that the perplexities of a report measure."""
    return "Perplexity of last words" if metrics.get("score") == "last-word" else "Perplexity"


def scored(metrics: Mapping[str, Any]) -> str:
    """The scored part of a text: `test`; `test, last words`."""
    return metrics["split"] + (", last words" if metrics.get("score") == "last-word" else "")
