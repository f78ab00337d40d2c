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
from stages.pages.source import ReportSource
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
    reports_of_text: dict[tuple[str, str, str], list[Artifact]] = {}
    comparisons = []
    try:
        for report in reports:
            reports_of_text.setdefault(text_of(report), []).append(report)
        for same_text in reports_of_text.values():
            sizes = [len(group) for group in seed_groups(same_text)]
            if max(sizes, default=0) > 1:
                comparisons.append(compare_groups(same_text, CONFIDENCE))
    except ArtifactError:  # models or tokens were deleted: the page says so, and shows the rest
        return []
    return comparisons


def means_over_seeds(tables: Sequence[Mapping[str, Any]]) -> Means:
    """Means over seeds, by report and row, from the result of `seed_tables`."""
    means: dict[tuple[str, str], OverSeeds] = {}
    for table in tables:
        for group in table["groups"]:
            reports = group["reports"]
            # a single report is no mean
            if len(reports) == 1:
                continue
            for row in group["rows"]:
                over_seeds = _over_seeds(row, reports[0])
                for report in reports:
                    means[report, row["row"]] = over_seeds
    return means


def _over_seeds(row: Mapping[str, Any], first: str) -> OverSeeds:
    """Means of a row, from the result of `compare_groups`; `first`: the first report of the group."""
    perplexity = row["perplexity"]
    change = row["change"] or {"mean": None, "interval": None}
    return OverSeeds(
        first=first,
        runs=perplexity["n"],
        perplexity=perplexity["mean"],
        deviation=perplexity["deviation"],
        change=change["mean"],
        interval=change["interval"],
        against_counting=AgainstCounting(**row["against_counting"]),
    )


CHANGES = (
    *("change", "change_low", "change_high", "change_on_new_text"),
    *("against_counting", "against_counting_low", "against_counting_high"),
)


@dataclass(frozen=True)
class ReportRow:
    """One line of the table."""

    source: ReportSource
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


def headline(sources: Sequence[ReportSource], means: Means | None = None) -> list[ReportRow]:
    """All rows, report by report, in the order of each report; the row of its baseline comes first."""
    means = means or {}
    rows = []
    for source in sources:
        for row in _rows(source):
            over_seeds = means.get((source.member.reference, row.name))
            if over_seeds is not None and not row.baseline:
                row = replace(row, over_seeds=over_seeds, ties=False)
            rows.append(row)

    perplexities = defaultdict[str, list[float]](list)
    for row in rows:
        if not row.is_control:
            perplexities[row.source.text].append(row.typical)
    # a single row is not marked as best
    lowest = {
        text: min(values) if len(values) > 1 else inf for text, values in perplexities.items()
    }
    return [replace(row, best=_is_best(row, lowest)) for row in rows]


def _is_best(row: ReportRow, lowest: Mapping[str, float]) -> bool:
    """Whether a row has the lowest perplexity on its text, by text; never if that is infinite."""
    if row.is_control or not isfinite(row.typical):
        return False
    return row.typical == lowest[row.source.text]


class Ranking(NamedTuple):
    """The lowest row of each report on one text, sorted by perplexity; reports that differ only in
    seed are one.
    """

    scored: str
    rows: Sequence[ReportRow]


TYPICAL = attrgetter("typical")


def rankings(rows: Sequence[ReportRow]) -> list[Ranking]:
    """A ranking for each text that several reports scored; reports without a finite perplexity are
    left out.
    """
    # the lowest row of each report, by text
    texts: dict[str, dict[str, ReportRow]] = {}
    for row in rows:
        if row.baseline or row.is_control or row.values["perplexity"] is None:
            continue
        lowest = texts.setdefault(row.source.text, {})
        # reports that differ only in their seed count as one
        report = row.over_seeds.first if row.over_seeds else row.source.member.reference
        lowest[report] = min(lowest.get(report, row), row, key=TYPICAL)

    ranked = []
    for lowest in texts.values():
        if len(lowest) > 1:
            first = next(iter(lowest.values()))
            by_perplexity = sorted(lowest.values(), key=TYPICAL)
            ranked.append(Ranking(first.source.scored, by_perplexity))
    return ranked


def measures_shown(rows: Sequence[ReportRow]) -> list[str]:
    """The measures of a table of rows, which stays narrow enough to read.

    Left out: the loss in nats; speed, which the artifacts' table has, and other costs, unless a
    memory was learned to save them; new text if all text is new; the perplexity of words, by which
    different tokenizers compare, if there is one tokenizer.
    """
    hidden = {"never"}
    memories = [memory for row in rows for memory in row.memories]
    if all(quotes(memory["sources"]) for memory in memories):
        hidden.add("costs")
    if not any(repeated_share(row.source.metrics) for row in rows):
        hidden.add("new text")
    tokenizers = {row.source.metrics["read"].get("tokens") for row in rows}
    if len(tokenizers) == 1:
        hidden.add("tokenizers")

    names = []
    for measure in MEASURES.all_measures():
        is_measured = any(shown(row, measure.name) is not None for row in rows)
        if is_measured and measure.shown not in hidden:
            names.append(measure.name)
    return names


def shown(row: ReportRow, measure: str) -> float | None:
    """A figure as shown in the table; None if it is meaningless."""
    value = row.values[measure]
    return (
        shown_word_perplexity(value, row.values["bits_per_character"])
        if measure == "word_perplexity"
        else value
    )


def comparison_words(rows: Sequence[ReportRow]) -> str:
    """Explanations of the readers' settings; empty if no row has any."""
    by_text = {
        memory.get(name)
        for row in rows
        for memory in row.memories
        for name in ("similarity", "key")
    }
    return "; ".join(f"{word}: {means}" for word, means in MEANS.items() if word in by_text)


def headline_csv(rows: Sequence[ReportRow]) -> str:
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


def _rows(source: ReportSource) -> list[ReportRow]:
    """The rows of a report, compared with its first row, or with its baseline, which then comes
    first.
    """
    metrics = source.metrics
    on_new_text = _on_new_text(metrics)
    rows = [_row(source, row["row"], row, on_new_text.get(row["row"])) for row in metrics["rows"]]
    baseline = _baseline(source)
    if baseline is not None:
        rows.insert(0, baseline)

    first, *others = rows
    _, ties = tied(metrics) or ("", ())
    return [first, *(replace(_against(first, row), ties=row.name in ties) for row in others)]


def _baseline(source: ReportSource) -> ReportRow | None:
    """The row of the report's baseline; None if it has none."""
    metrics = source.metrics
    baseline = metrics.get("baseline")
    if baseline is None:
        return None
    row = baseline["row"]
    # new text of other known texts is other text
    on_new_text = None
    if _known_texts(baseline) == _known_texts(metrics):
        on_new_text = _on_new_text(baseline).get(row["row"])
    return replace(_row(source, baseline_name(metrics), row, on_new_text), baseline=True)


def _row(
    source: ReportSource, name: str, reported: Mapping[str, Any], on_new_text: float | None
) -> ReportRow:
    values = {measure.name: reported.get(measure.name) for measure in MEASURES.all_measures()}
    counted = {COUNTING: counting(reported), COUNTING_ON_NEW_TEXT: counting_on_new_text(reported)}
    return ReportRow(source, name, reported, {**values, NEW_TEXT: on_new_text, **counted})


def _against(first: ReportRow, row: ReportRow) -> ReportRow:
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
    """A reading of memory in words: its sources; its reader and settings; what was tuned or learned,
    and where.
    """
    learned = memory.get("learned")
    memory = that_matter(memory)
    settings = [memory["reader"], memory.get("similarity"), memory.get("key")]
    words = [str(setting) for setting in settings if setting]
    for name in hyperparameters():
        if memory.get(name) is not None and name != learned:
            value = number_words(memory, name, split_tokens)
            words.append(f"{symbol(name)}\N{NO-BREAK SPACE}{value}")

    choices = []
    tuned = [symbol(name) for name in memory.get("tuned") or () if name != learned]
    if tuned:
        choices.append(f"{', '.join(tuned)} tuned on {memory['tune_split']}")
    if learned is not None:
        choices.append(f"{symbol(learned)} learned on {memory['tune_split']}")
    return Note("+".join(memory["sources"]), ", ".join(words), "; ".join(choices))
