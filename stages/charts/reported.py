"""A report as charts read it, and the names of its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stages.numbers import bucket_label
from stages.retrieval.hyperparameters import hyperparameters

T = TypeVar("T")
MAX_SERIES = 6
"""Maximum number of series in one chart, so that readers can distinguish them."""
OTHERS = {"neighbors": "neighbours let in", "rows": "datastore size"}
"""Names of quantities that curves show besides the amounts of readings."""
BLEU = "bleu"
"""Key of BLEU in the candidates of tuning."""


@dataclass(frozen=True)
class Report:
    """The content of `metrics.json`, and the labels that distinguish it from other reports in one
    chart.
    """

    metrics: Mapping[str, Any]
    scored: str
    """The scored text: `test`, `wikitext-2 test`, `lambada test, last words`."""
    label: str = ""
    """Name of the report in the chart; empty: it is the only one."""

    def series(self, row: str) -> str:
        """Name of the line that shows one of its rows."""
        return f"{self.label}: {row}" if self.label else row


def measure(metrics: Mapping[str, Any]) -> str:
    """Name of the measure on an axis: it says which tokens the perplexity is about."""
    return "Perplexity of last words" if metrics.get("score") == "last-word" else "Perplexity"


def scored(metrics: Mapping[str, Any]) -> str:
    """Name of the scored part of a text: `test`; `test, last words`."""
    return metrics["split"] + (", last words" if metrics.get("score") == "last-word" else "")


def bucket_labels(frequency: Mapping[str, Any]) -> list[str]:
    """The buckets of a report, in words."""
    return [bucket_label(bucket["more_than"], bucket["at_most"]) for bucket in frequency["buckets"]]


def counted_in(metrics: Mapping[str, Any]) -> str:
    """Name of the text in which tokens were counted."""
    return (
        "the training text"
        if metrics["frequency_buckets"]["counted_in"] == "train"
        else metrics["split"]
    )


def symbol(name: str) -> str:
    """Symbol of a number in a table: `τ`, `k`, `cache size`."""
    numbers = hyperparameters()
    return numbers[name].symbol if name in numbers else OTHERS.get(name, name)


def symbol_in_words(name: str) -> str:
    """Name of a number on an axis or in a title: `temperature τ`, `neighbours`, `cache size`."""
    numbers = hyperparameters()
    return numbers[name].words if name in numbers else OTHERS.get(name, name)


def in_charts(
    series: Sequence[T], max_series: int = MAX_SERIES
) -> Iterator[tuple[str, Sequence[T]]]:
    """Split series into charts of nearly equal size, `max_series` at the most.

    Yields: the suffix of a chart's name (empty for a single chart, otherwise `-1`, `-2`, …), and
    its series.
    """
    count = -(-len(series) // max_series)
    for part in range(count):
        start, stop = (len(series) * edge // count for edge in (part, part + 1))
        yield ("" if count == 1 else f"-{part + 1}"), series[start:stop]
