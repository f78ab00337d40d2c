"""The first table: every row of every report, with its memory, and its mean over seeds if there are
several.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from operator import attrgetter
from typing import Any, NamedTuple

from stages.artifacts.artifact import Artifact
from stages.charts.data import csv_text
from stages.charts.reported import symbol
from stages.errors import ArtifactError
from stages.evaluation.figures.seed_groups import compare_groups, seed_groups, text_of
from stages.metrics import shown_word_perplexity
from stages.pages.source import Source
from stages.reports.counting import AgainstCounting, against_counting
from stages.reports.fields import (
    SHORTER,
    baseline_name,
    counting,
    counting_on_new_text,
    repeated_share,
)
from stages.reports.measures import COUNTING, COUNTING_ON_NEW_TEXT, MEASURES, NEW_TEXT
from stages.reports.remarks.gains import tied
from stages.reports.tables import Note
from stages.retrieval.hyperparameters import hyperparameters, number_words, quotes, that_matter
from stages.retrieval.reading import MEANS

CONFIDENCE = 0.95


class OverSeeds(NamedTuple):
    """Means of one row over all reports that differ only in their seed."""

    first: str
    """Reference of the first of these reports."""
    runs: int
    perplexity: float
    """Mean perplexity."""
    deviation: float
    change: float | None
    """Mean change of perplexity against the first row of the first group, run by run; None for that
    row itself.
    """
    interval: Sequence[float] | None
    """Confidence interval of that mean."""
    against_counting: AgainstCounting
    """Means of the row and of its controls, on the same text."""


Means = Mapping[tuple[str, str], OverSeeds]
"""Means by report and row, for reports with several seeds."""


def seed_tables(reports: Sequence[Artifact]) -> list[dict[str, Any]]:
    """Comparisons of groups of seeds on each text; empty if no model was trained with several
    seeds.
    """
    texts: dict[tuple[str, str, str], list[Artifact]] = {}
    try:
        for report in reports:
            texts.setdefault(text_of(report), []).append(report)
        groups = [(held, seed_groups(held)) for held in texts.values()]
        return [
            compare_groups(held, CONFIDENCE)
            for held, seed_group in groups
            if any(len(group) > 1 for group in seed_group)
        ]
    except ArtifactError:  # models or tokens were deleted: the page says so, and shows the rest
        return []


def means_over_seeds(tables: Sequence[Mapping[str, Any]]) -> Means:
    """Means over seeds, by report and row, from the result of `seed_tables`."""
    means: dict[tuple[str, str], OverSeeds] = {}
    for group in (
        group for table in tables for group in table["groups"] if len(group["reports"]) > 1
    ):
        for row in group["rows"]:
            value = row["perplexity"]
            change = row["change"] or {"mean": None, "interval": None}
            mean = value["n"], value["mean"], value["deviation"], change["mean"], change["interval"]
            pair = AgainstCounting(**row["against_counting"])
            over_seeds = OverSeeds(group["reports"][0], *mean, pair)
            means |= {(report, row["row"]): over_seeds for report in group["reports"]}
    return means


CHANGES = (
    *("change", "change_low", "change_high", "change_on_new_text"),
    *("against_counting", "against_counting_low", "against_counting_high"),
)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    source: Source
    name: str
    reported: Mapping[str, Any]
    """The row, as in the report's `metrics.json`."""
    values: Mapping[str, float | None]
    """Values by the names of measures; None if not measured."""
    change: float | None = None
    """Change of perplexity against the first row of the report, or its baseline's, as a share; None
    for that row itself."""
    change_on_new_text: float | None = None
    """The same change, of perplexity on text that was not read before."""
    interval: Sequence[float] | None = None
    """Confidence interval of `change` over resampled documents; None if it was not computed."""
    interval_on_new_text: Sequence[float] | None = None
    baseline: bool = False
    """Whether the row belongs to the baseline of the report."""
    best: bool = False
    """Whether no other row on the same tokens has a lower perplexity; with several seeds, a lower
    mean.
    """
    ties: bool = False
    """Whether the row may be above the lowest of its report by chance alone; False with several
    seeds.
    """
    over_seeds: OverSeeds | None = None
    """Means over seeds; None if there is no other seed."""

    @property
    def is_control(self) -> bool:
        """Whether it only shows what an open book's room costs: its gain is none of a memory."""
        return self.name == SHORTER

    @property
    def memories(self) -> Sequence[Mapping[str, Any]]:
        """The readings of memory, as in the report."""
        memories: Sequence[Mapping[str, Any]] = self.reported["memories"]
        return memories

    @property
    def notes(self) -> list[Note]:
        """The readings in words: sources, settings, and `τ, λ tuned on valid`, if anything was
        tuned.
        """
        metrics = self.source.metrics
        return [
            _note(memory, metrics["tokens"] if metrics.get("score") == "all" else None)
            for memory in self.memories
        ]

    @property
    def against_counting(self) -> AgainstCounting:
        """The row and its control on the same text, or means over seeds; a baseline has no control."""
        if self.baseline:
            return AgainstCounting()
        if self.over_seeds is not None:
            return self.over_seeds.against_counting
        return against_counting(self.source.metrics, self.reported)

    @property
    def typical(self) -> float:
        """The perplexity by which rows are compared: the mean over seeds, if several; infinite if
        not known.
        """
        value = self.values["perplexity"] if self.over_seeds is None else self.over_seeds.perplexity
        return inf if value is None else value


def headline(sources: Sequence[Source], means: Means | None = None) -> list[Row]:
    """All rows, report by report, in the order of each report; the row of its baseline comes first."""
    rows = []
    measured = defaultdict[str, list[float]](list)
    for row in (row for source in sources for row in _rows(source)):
        of = None if row.baseline else (means or {}).get((row.source.member.reference, row.name))
        rows.append(row if of is None else replace(row, over_seeds=of, ties=False))
        if not row.is_control:
            measured[row.source.text].append(rows[-1].typical)
    # a single row is not marked as best
    lowest = {text: min(values) if len(values) > 1 else inf for text, values in measured.items()}
    return [
        replace(
            row,
            best=isfinite(row.typical)
            and row.typical == lowest[row.source.text]
            and not row.is_control,
        )
        for row in rows
    ]


class Ranking(NamedTuple):
    """The lowest row of each report on one text, sorted by perplexity; reports that differ only in
    seed are one.
    """

    scored: str
    rows: Sequence[Row]


TYPICAL = attrgetter("typical")


def rankings(rows: Sequence[Row]) -> list[Ranking]:
    """A ranking for each text that several reports scored; reports without a finite perplexity are
    left out.
    """
    texts: dict[str, dict[str, Row]] = {}
    for row in (row for row in rows if not (row.baseline or row.is_control)):
        lowest = texts.setdefault(row.source.text, {})
        if row.values["perplexity"] is not None:
            report = row.over_seeds.first if row.over_seeds else row.source.member.reference
            lowest[report] = min(lowest.get(report, row), row, key=TYPICAL)
    return [
        Ranking(next(iter(reports.values())).source.scored, sorted(reports.values(), key=TYPICAL))
        for reports in texts.values()
        if len(reports) > 1
    ]


def measures_shown(rows: Sequence[Row]) -> list[str]:
    """The measures of a table of rows, which stays narrow enough to read.

    Left out: the loss in nats; speed, which the artifacts' table has, and other costs, unless a
    memory was learned to save them; new text if all text is new; the perplexity of words, by which
    different tokenizers compare, if there is one tokenizer.
    """
    hidden = {"never"}
    if all(quotes(memory["sources"]) for row in rows for memory in row.memories):
        hidden.add("costs")
    if not any(repeated_share(row.source.metrics) for row in rows):
        hidden.add("new text")
    if len({row.source.metrics["read"].get("tokens") for row in rows}) == 1:
        hidden.add("tokenizers")
    names = [measure.name for measure in MEASURES.all_measures() if measure.shown not in hidden]
    return [name for name in names if any(shown(row, name) is not None for row in rows)]


def shown(row: Row, measure: str) -> float | None:
    """A figure as shown in the table; None if it is meaningless."""
    value = row.values[measure]
    return (
        shown_word_perplexity(value, row.values["bits_per_character"])
        if measure == "word_perplexity"
        else value
    )


def comparison_words(rows: Sequence[Row]) -> str:
    """Explanations of the readers' settings; empty if no row has any."""
    by_text = {
        memory.get(name)
        for row in rows
        for memory in row.memories
        for name in ("similarity", "key")
    }
    return "; ".join(f"{word}: {means}" for word, means in MEANS.items() if word in by_text)


def headline_csv(rows: Sequence[Row]) -> str:
    """The table as CSV, with all digits, and memories as JSON."""
    measures = [measure.name for measure in MEASURES.all_measures()]
    lines: list[Sequence[Any]] = [
        (
            "report",
            "method",
            "row",
            "corpus",
            "split",
            "score",
            "tokens",
            *measures,
            *CHANGES,
            "memories",
        )
    ]
    for row in rows:
        metrics = row.source.metrics
        corpus = row.source.metrics["read"]["tokens"]
        text = corpus, metrics["split"], metrics.get("score", "all"), metrics["tokens"]
        pair = row.against_counting
        changes = (
            *(row.change, *(row.interval or (None, None)), row.change_on_new_text),
            *(pair.change, *(pair.interval or (None, None))),
        )
        figures = *map(row.values.get, measures), *changes, json.dumps(row.memories)
        lines.append((row.source.member.reference, metrics["method"], row.name, *text, *figures))
    return csv_text(lines)


def _rows(source: Source) -> list[Row]:
    """The rows of a report, compared with its first row, or with its baseline, which then comes
    first.
    """
    metrics = source.metrics
    baseline = source.metrics.get("baseline")
    _, ties = tied(metrics) or ("", ())
    rows = [
        _row(source, row["row"], row, _on_new_text(metrics).get(row["row"]))
        for row in metrics["rows"]
    ]
    if baseline is not None:
        theirs = baseline["row"]
        on_new_text = (
            _on_new_text(baseline).get(theirs["row"])
            if _known_texts(baseline) == _known_texts(metrics)
            else None
        )
        first = _row(source, baseline_name(metrics), theirs, on_new_text)
        rows = [replace(first, baseline=True), *rows]
    return [rows[0], *(replace(_against(rows[0], row), ties=row.name in ties) for row in rows[1:])]


def _row(source: Source, name: str, reported: Mapping[str, Any], on_new_text: float | None) -> Row:
    values = {measure.name: reported.get(measure.name) for measure in MEASURES.all_measures()}
    counted = {COUNTING: counting(reported), COUNTING_ON_NEW_TEXT: counting_on_new_text(reported)}
    return Row(source, name, reported, {**values, NEW_TEXT: on_new_text, **counted})


def _against(first: Row, row: Row) -> Row:
    """A row with its changes against the first."""
    change, on_new_text = (
        _change(row.values[name], first.values[name]) for name in ("perplexity", NEW_TEXT)
    )
    drawn = row.source.metrics.get("change_intervals") or {"rows": ()}
    intervals: Mapping[str, Any] = next(
        (interval for interval in drawn["rows"] if interval["row"] == row.name), {}
    )
    return replace(
        row,
        change=change,
        change_on_new_text=on_new_text,
        interval=None if change is None else intervals.get("interval"),
        interval_on_new_text=None if on_new_text is None else intervals.get("on_new_text"),
    )


def _change(value: float | None, first: float | None) -> float | None:
    """Change as a share; None if there is none, or if either value is not known."""
    return value / first - 1 if value and first and value != first else None


def _on_new_text(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Perplexities outside paragraphs that were read before, by row."""
    outside = metrics.get("outside_repeated_paragraphs") or {"rows": ()}
    return {row["row"]: row["perplexity"] for row in outside["rows"]}


def _known_texts(metrics: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Corpus and split of the texts whose paragraphs were left out."""
    outside = metrics.get("outside_repeated_paragraphs") or {}
    return {(text["corpus"], text["split"]) for text in outside.get("texts", ())}


def _note(memory: Mapping[str, Any], split_tokens: int | None) -> Note:
    memory, learned = that_matter(memory), memory.get("learned")
    chosen = [
        f"{symbol(name)}\N{NO-BREAK SPACE}{number_words(memory, name, split_tokens)}"
        for name in hyperparameters()
        if memory.get(name) is not None and name != learned
    ]
    kind = [memory["reader"], memory.get("similarity"), memory.get("key")]
    tuned = [symbol(name) for name in memory.get("tuned") or () if name != learned]
    where = f"{', '.join(tuned)} tuned on {memory['tune_split']}" if tuned else ""
    if learned is not None:
        where = "; ".join(
            filter(None, (where, f"{symbol(learned)} learned on {memory['tune_split']}"))
        )
    return Note(
        "+".join(memory["sources"]), ", ".join([*(str(k) for k in kind if k), *chosen]), where
    )
