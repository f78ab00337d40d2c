"""Where a memory helps: perplexity by how often a token stands in the training text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.charts.drawing.bar_chart import Bars, bar_chart
from stages.charts.drawing.figure import Figure, slug
from stages.numbers import bucket_label
from stages.pages.chunks import in_figures
from stages.pages.source import Source


@dataclass(frozen=True)
class BucketTable:
    """Perplexity of each row of a report in each bucket, the most frequent tokens first."""

    source: Source
    counted_in: str
    buckets: Sequence[str]
    tokens: Sequence[int]
    rows: Sequence[Mapping[str, Any]]


def frequency_items(sources: Sequence[Source]) -> list[Figure | BucketTable]:
    """Of each report that has buckets, the change against its first row as figures, and all numbers as a table."""
    items: list[Figure | BucketTable] = []
    for source in sources:
        if source.metrics.get("frequency_buckets"):
            table = _table(source)
            items += [*_figures(table), table]
    return items


def _figures(table: BucketTable) -> list[Figure]:
    name = f"frequency-{slug(table.source.label)}"
    charts = [_chart(f"{name}{suffix}", table, part) for suffix, part in in_figures(table.rows[1:])]
    return [chart for chart in charts if chart is not None]


def _table(source: Source) -> BucketTable:
    told = source.metrics["frequency_buckets"]
    counted = "the training text" if told["counted_in"] == "train" else source.scored
    buckets = [bucket_label(bucket["more_than"], bucket["at_most"]) for bucket in told["buckets"]]
    return BucketTable(source, counted, buckets, [bucket["tokens"] for bucket in told["buckets"]], told["rows"])


def _chart(name: str, table: BucketTable, rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    first = table.rows[0]
    series = [Bars(row["row"], _changes(row["perplexity"], first["perplexity"])) for row in rows]
    columns = ["row", *(f"perplexity at {bucket}" for bucket in table.buckets)]
    source = table.source
    return bar_chart(
        name,
        f"Change by frequency: {source.label}, {source.scored}",
        f"Change of perplexity against {first['row']}, by how often the token stands in {table.counted_in}; "
        "below zero the memory helps.",
        table.buckets,
        series,
        (f"times in {table.counted_in}", "change of perplexity"),
        lambda value: f"{value:+.0%}" if value else "0",
        (columns, [[row["row"], *row["perplexity"]] for row in (first, *rows)]),
    )


def _changes(values: Sequence[float | None], firsts: Sequence[float | None]) -> list[float | None]:
    return [value / first - 1 if value and first else None for value, first in zip(values, firsts, strict=True)]
