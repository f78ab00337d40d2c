"""The title of a page: what came out, in words."""

from collections.abc import Sequence
from math import inf

from stages.numbers import measured
from stages.pages.headline import Row
from stages.pages.source import Source


def page_title(sources: Sequence[Source], rows: Sequence[Row]) -> str:
    """`knn-lm: perplexity 70.50 on test, 10.3% below plain`; `3 reports on test: lowest perplexity 31.48, both`."""
    texts = dict.fromkeys(source.scored for source in sources)
    finite = [row for row in rows if not row.baseline and row.values["perplexity"] is not None]
    lowest = min(finite, key=lambda row: row.values["perplexity"] or inf, default=None)
    if lowest is None or len({source.text for source in sources}) > 1:
        return f"{_reports(sources)} on {', '.join(texts)}"
    found = measured(lowest.values["perplexity"] or 0.0, "perplexity")
    if len(sources) > 1:
        row = "" if lowest.name in lowest.source.label else f" ({lowest.name})"
        return f"{_reports(sources)} on {', '.join(texts)}: lowest perplexity {found}, {lowest.source.label}{row}"
    return f"{lowest.name}: perplexity {found} on {lowest.source.scored}{_against(lowest, rows[0])}"


def _reports(sources: Sequence[Source]) -> str:
    return "Report" if len(sources) == 1 else f"{len(sources)} reports"


def _against(row: Row, first: Row) -> str:
    """`, 10.3% below plain`; empty where the first row is the lowest."""
    return f", {-row.change:.1%} below {first.name}" if row.change is not None and row.change < 0 else ""
