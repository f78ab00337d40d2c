"""Curves over the size of a datastore, through reports that differ in it alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.charts.data import Chart, Line, Lines, slug
from stages.charts.reported import Report, in_charts, measure, symbol_in_words

ROWS = "rows"
Kind = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""Text, model, row, and corpora that the row reads: what reports of one line have in common."""


def datastore_charts(reports: Sequence[Report]) -> list[Chart]:
    """`perplexity-by-rows`, `bleu-by-rows`: the first memory of each report over the rows of its datastore.

    None where no two reports of one model, text, memory and corpora read datastores of other sizes.
    """
    groups: dict[Kind, list[Report]] = {}
    for report in reports:
        metrics, read = report.metrics, report.metrics.get("read", {})
        if "datastore" in read and "neighbors" not in read and "tuning" in metrics and len(metrics["rows"]) > 1:
            memory = metrics["rows"][1]
            kind = report.scored, read["model"], memory["row"], _corpora(memory)
            groups.setdefault(kind, []).append(report)
    return [*_charts("perplexity", groups), *_charts("bleu", groups)]


def _corpora(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Corpus and split of each text that a row reads, as its control names them.

    Datastores of two domains make no curve: that one is larger says nothing.
    """
    control = row.get("control") or {"texts": []}
    return tuple(sorted((text["corpus"], text["split"]) for text in control["texts"]))


def _charts(name: str, groups: Mapping[Kind, Sequence[Report]]) -> Iterator[Chart]:
    lines = [
        Line(f"{row}: {text}", points)
        for (text, _, row, _), reports in groups.items()
        if len(points := _points(name, reports)) > 1
    ]
    words = symbol_in_words(ROWS)
    for suffix, part in in_charts(lines):
        what = "BLEU" if name == "bleu" else measure(next(iter(groups.values()))[0].metrics)
        yield Chart(
            f"{slug(name)}-by-{ROWS}{suffix}",
            f"{what} by {words}",
            f"{what} of reports that differ in their datastore; other settings as tuned in each.",
            Lines(part, words, what, ticks=sorted({x for line in part for x, _ in line.points}), even=name == "bleu"),
        )


def _points(name: str, reports: Sequence[Report]) -> list[tuple[float, float]]:
    """Rows of the datastore, and the measure of the first memory, in rising order; the last report of each size."""
    found = {
        report.metrics["tuning"]["largest"]["k"]: report.metrics["rows"][1][name]
        for report in reports
        if report.metrics["rows"][1].get(name) is not None
    }
    return sorted(found.items())
