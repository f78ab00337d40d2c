"""One report, as charts read it, and the names of its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stages.retrieval.hyperparameters import hyperparameters

T = TypeVar("T")
MOST = 6
"""Series of one chart, as many as a person can tell apart."""
OTHERS = {"neighbors": "neighbours let in", "rows": "datastore size"}
"""Quantities of curves besides the amounts of readings."""


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


def symbol(name: str) -> str:
    """`τ`, `k`, `cache size`: for a table."""
    known = hyperparameters()
    return known[name].symbol if name in known else OTHERS.get(name, name)


def symbol_in_words(name: str) -> str:
    """`temperature τ`, `neighbours`, `cache size`: for an axis or a title."""
    known = hyperparameters()
    return known[name].words if name in known else OTHERS.get(name, name)


def in_charts(series: Sequence[T], most: int = MOST) -> Iterator[tuple[str, Sequence[T]]]:
    """Equal parts of at most `most`, and what tells their charts apart: nothing, or `-1`, `-2`, …"""
    count = -(-len(series) // most)
    for part in range(count):
        start, stop = (len(series) * edge // count for edge in (part, part + 1))
        yield ("" if count == 1 else f"-{part + 1}"), series[start:stop]
