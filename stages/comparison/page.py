"""A comparison as a self-contained web page, without scripts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.charts.data import Bars, Chart, Series
from stages.charts.figure import figures
from stages.charts.report import few_note
from stages.comparison.sentences import (
    against,
    group_tables,
    position_label,
    text_lines,
    token_figures,
    top_tokens,
    verdict,
)
from stages.metrics import FEW_TOKENS
from stages.numbers import bucket_label
from stages.reports.measures import measured
from stages.web import render

Facts = Mapping[str, Any]
TEMPLATE = Path(__file__).parent / "compare.html"
CAPTION = "Nats a token, B minus A: below zero B is better. Lines are {:.4g}% intervals."


def page(facts: Facts) -> str:
    """The page of a result of `stages.comparison.compare.compare`, as HTML; text of a corpus is
    escaped.
    """
    return render(
        TEMPLATE,
        title=verdict(facts),
        found=facts,
        lines=list(text_lines(facts)),
        figures=list(figures(list(comparison_charts(facts)))),
        tables=list(group_tables(facts)),
        tops=[(title, tokens) for title, tokens in top_tokens(facts) if tokens],
        token_figures=token_figures,
        against=against,
        measured=measured,
    )


def comparison_charts(facts: Facts) -> Iterator[Chart]:
    """Charts of the difference by frequency and by position; empty unless tokens are paired."""
    if facts["paired_on"] != "tokens":
        return
    caption = CAPTION.format(100 * facts["bootstrap"]["confidence"])
    if facts["by_frequency"] is not None:
        groups = facts["by_frequency"]["buckets"]
        labels = [bucket_label(group["more_than"], group["at_most"]) for group in groups]
        yield _chart(
            "difference-by-frequency", "By frequency", caption, labels, groups, "times in train"
        )
    groups = facts["by_position"]
    labels = [position_label(group) for group in groups]
    yield _chart(
        "difference-by-position",
        "By position",
        caption,
        labels,
        groups,
        "tokens before, in the document",
    )


def _chart(
    name: str, title: str, caption: str, labels: Sequence[str], groups: Sequence[Facts], across: str
) -> Chart:
    """Bars of the difference of each group, with intervals; none for groups of few tokens."""
    differences: list[float | None] = []
    intervals: list[tuple[float, float] | None] = []
    for group in groups:
        has_many = group["tokens"] >= FEW_TOKENS
        interval = group["interval"] if has_many else None
        differences.append(group["difference"] if has_many else None)
        intervals.append(None if interval is None else (interval[0], interval[1]))

    caption += few_note(labels, [group["tokens"] for group in groups])
    series = Series("B - A", differences, intervals)
    return Chart(name, title, caption, Bars(labels, [series], across, "B - A, nats"))
