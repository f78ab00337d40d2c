"""The first table: every row of every report, with what its memory was read with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from stages.charts.data import Table
from stages.charts.symbols import symbol
from stages.numbers import number
from stages.pages.source import Source
from stages.retrieval.hyperparameters import hyperparameters

MEASURES = (
    "nll",
    "perplexity",
    "bits_per_character",
    "word_perplexity",
    "accuracy",
    "perplexity_on_new_text",
    "tokens_per_second",
)


@dataclass(frozen=True)
class Reading:
    """One memory of a row, in words."""

    sources: str
    settings: str
    tuned: str
    """`τ, λ tuned on valid`; empty where nothing was."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    source: Source
    name: str
    readings: Sequence[Reading]
    values: Mapping[str, float | None]
    """By the names of `MEASURES`; None where there is none."""
    change: float | None
    """Of perplexity against the report's first row, as a share; None for that row itself."""
    diverged: bool
    best: bool
    """Whether no other row on the same tokens has a smaller perplexity."""


def headline(sources: Sequence[Source]) -> list[Row]:
    """All rows, those of one report together, in its order."""
    lowest: dict[str, float] = {}
    for source in sources:
        for row in source.metrics["rows"]:
            if row["perplexity"] is not None:
                tokens = _tokens(source)
                lowest[tokens] = min(lowest.get(tokens, row["perplexity"]), row["perplexity"])
    return [_row(source, row, lowest.get(_tokens(source))) for source in sources for row in source.metrics["rows"]]


@dataclass(frozen=True)
class Ranking:
    """The lowest row of each report on one text, the lowest first."""

    scored: str
    rows: Sequence[Row]


def rankings(rows: Sequence[Row]) -> list[Ranking]:
    """One for each text that several reports scored; a report without a finite perplexity has no place in it."""
    texts: dict[str, dict[str, Row]] = {}
    for row in rows:
        lowest = texts.setdefault(_tokens(row.source), {})
        if row.values["perplexity"] is not None:
            report = row.source.member.reference
            lowest[report] = min(lowest.get(report, row), row, key=_perplexity)
    return [
        Ranking(next(iter(held.values())).source.scored, sorted(held.values(), key=_perplexity))
        for held in texts.values()
        if len(held) > 1
    ]


def _perplexity(row: Row) -> float:
    value = row.values["perplexity"]
    return inf if value is None else value


def measures_shown(rows: Sequence[Row]) -> list[str]:
    """The measures that any row has; the loss in nats is in the CSV alone."""
    return [name for name in MEASURES if name != "nll" and any(row.values[name] is not None for row in rows)]


def headline_table(rows: Sequence[Row]) -> Table:
    """The table with all digits, memories as JSON."""
    columns = ("report", "method", "row", "corpus", "split", "score", "tokens", *MEASURES, "change", "memories")
    return Table(columns, [_line(row) for row in rows])


def _line(row: Row) -> list[Any]:
    metrics = row.source.metrics
    memories = next(r["memories"] for r in metrics["rows"] if r["row"] == row.name)
    return [
        *(row.source.member.reference, metrics["method"], row.name, metrics["read"]["tokens"], metrics["split"]),
        *(metrics.get("score", "all"), metrics["tokens"]),
        *(row.values[name] for name in MEASURES),
        *(row.change, json.dumps(memories)),
    ]


def _row(source: Source, row: Mapping[str, Any], lowest: float | None) -> Row:
    first, value = source.metrics["rows"][0]["perplexity"], row["perplexity"]
    compared = first and value and row is not source.metrics["rows"][0]
    outside = source.metrics.get("outside_repeated_paragraphs") or {"rows": ()}
    values = {name: row.get(name) for name in MEASURES}
    values["perplexity_on_new_text"] = next((r["perplexity"] for r in outside["rows"] if r["row"] == row["row"]), None)
    return Row(
        source=source,
        name=row["row"],
        readings=[_reading(memory) for memory in row["memories"]],
        values=values,
        change=value / first - 1 if compared else None,
        diverged=bool(row.get("diverged")),
        best=value is not None and value == lowest,
    )


def _tokens(source: Source) -> str:
    return f"{source.metrics['read']['tokens']} {source.scored}"


def _reading(memory: Mapping[str, Any]) -> Reading:
    told = [
        f"{symbol(name)}\N{NO-BREAK SPACE}{number(memory[name])}"
        for name in hyperparameters()
        if memory.get(name) is not None
    ]
    kind = [memory["reader"], memory.get("similarity"), memory.get("key")]
    tuned = [symbol(name) for name in memory.get("tuned") or ()]
    where = f"{', '.join(tuned)} tuned on {memory['tune_split']}" if tuned else ""
    return Reading("+".join(memory["sources"]), ", ".join([*(str(k) for k in kind if k), *told]), where)
