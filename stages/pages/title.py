"""The title of a page: what came out, in words."""

from collections.abc import Sequence
from math import inf

from stages.evaluation.results.remarks import is_weak, undertrained_lines
from stages.numbers import measured
from stages.pages.headline import Row
from stages.pages.source import Source


def page_title(sources: Sequence[Source], rows: Sequence[Row]) -> str:
    """`knn-lm: perplexity 70.50 on test, 10.3% [8.9%, 11.6%] below plain`, with its interval; or, of several,
    `3 reports on test: lowest perplexity 31.48, both`.
    """
    texts = dict.fromkeys(source.scored for source in sources)
    finite = [row for row in rows if not row.baseline and row.values["perplexity"] is not None]
    lowest = min(finite, key=lambda row: row.values["perplexity"] or inf, default=None)
    if lowest is None or len({source.text for source in sources}) > 1:
        return f"{_reports(sources)} on {', '.join(texts)}"
    found = measured(lowest.values["perplexity"] or 0.0, "perplexity")
    unripe = _unripe(lowest.source)
    if len(sources) > 1:
        row = "" if lowest.name in lowest.source.label else f" ({lowest.name})"
        found = f"{found}, {lowest.source.label}{row}{unripe}"
        return f"{_reports(sources)} on {', '.join(texts)}: lowest perplexity {found}"
    return f"{lowest.name}: perplexity {found} on {lowest.source.scored}{_against(lowest, rows[0])}{unripe}"


def _reports(sources: Sequence[Source]) -> str:
    return "Report" if len(sources) == 1 else f"{len(sources)} reports"


def _against(row: Row, first: Row) -> str:
    """`, 10.3% [8.9%, 11.6%] below plain`; empty where the first row is the lowest."""
    if row.change is None or row.change >= 0:
        return ""
    interval = f" [{-row.interval[1]:.1%}, {-row.interval[0]:.1%}]" if row.interval else ""
    return f", {-row.change:.1%}{interval} below {first.name}"


def _unripe(source: Source) -> str:
    """` (undertrained)`, ` (hardly better than a trigram, if at all)`, where remarks say so."""
    flaws = ["undertrained"] if any(undertrained_lines(source.metrics)) else []
    flaws += ["hardly better than a trigram, if at all"] if is_weak(source.metrics) else []
    return f" ({'; '.join(flaws)})" if flaws else ""
