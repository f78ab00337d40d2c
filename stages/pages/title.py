"""The title of a page: what came out, in words."""

from collections.abc import Sequence

from stages.numbers import measured, tenths
from stages.pages.headline import TYPICAL, Row
from stages.pages.source import Source
from stages.reports.remarks.gains import loses_to_counting, notably_repeated


def page_title(sources: Sequence[Source], rows: Sequence[Row]) -> str:
    """`knn-lm: perplexity 70.50 on test, 10.3% [8.9%, 11.6%] below plain`, with its interval; or, of several,
    `3 reports on test: lowest perplexity 31.48, both, 5.3% below plain`. Reports that differ by their seed alone are
    told by their mean. A row that does not beat counting has no gain: `…, no better than counting (50.00)`.

    Where a baseline is lower than all rows, it is of the lowest that reads a memory: `trime: …, 2.5% above plain (…)`.
    """
    texts = dict.fromkeys(source.scored for source in sources)
    finite = [row for row in rows if not row.baseline and row.values["perplexity"] is not None]
    lowest = min(finite, key=TYPICAL, default=None)
    if lowest is None or len({source.text for source in sources}) > 1:
        return f"{_reports(sources)} on {', '.join(texts)}"
    baseline = _lower_baseline(rows, lowest)
    if baseline is not None and len(sources) == 1:
        lowest = min((row for row in finite if row.memories), key=TYPICAL, default=lowest)
    lower = "" if baseline is None else f"; a baseline, {baseline.name}, is lower: {_perplexity(baseline)}"
    found, unripe = f"{_perplexity(lowest)}{_of_seeds(lowest)}", "" if _loses(lowest) else _flaw(lowest)
    gain = _against(lowest, next(row for row in rows if row.source is lowest.source))
    elsewhere = lowest.over_seeds and lowest.over_seeds.first != rows[0].source.member.reference
    if elsewhere:  # means are against the first row of the first model
        gain = ""
    gain = _no_better(lowest) or gain
    if len(sources) > (1 if lowest.over_seeds is None else lowest.over_seeds.runs):
        row = "" if lowest.name in lowest.source.label else f" ({lowest.name})"
        found = f"{found}, {lowest.source.label}{row}{'' if lower else gain}{unripe}"
        lowest_of = "lowest mean perplexity" if lowest.over_seeds else "lowest perplexity"
        return f"{_reports(sources)} on {', '.join(texts)}: {lowest_of} {found}{lower}"
    ties = "".join(f"; {row.name}, {_perplexity(row)}, ties" for row in rows if row.ties)
    compared = f"{gain}{'' if _loses(lowest) else _on_new_text(lowest, gain)}" or lower
    return f"{lowest.name}: perplexity {found} on {lowest.source.scored}{compared}{ties}{unripe}"


def short_title(sources: Sequence[Source], rows: Sequence[Row]) -> str:
    """One short sentence: `neural-cache is best on corpus test, 32.4% below plain`; remarks say the rest."""
    text = ", ".join(dict.fromkeys(source.scored for source in sources))
    finite = [row for row in rows if not row.baseline and row.values["perplexity"] is not None]
    lowest = min(finite, key=TYPICAL, default=None)
    if lowest is None:
        return f"Memory tried on {text}"
    if _loses(lowest):
        return f"{lowest.name} is no better than counting on {text}"
    change = (lowest.over_seeds or lowest).change
    if change is None or change >= 0:
        return f"No memory gains on {text}"
    return f"{lowest.name} is best on {text}, {_percent(-change)} below {rows[0].name}"


def _perplexity(row: Row) -> str:
    return measured(row.typical, "perplexity")


def _lower_baseline(rows: Sequence[Row], lowest: Row) -> Row | None:
    """The lowest row of a baseline, where no row of the reports themselves is as low."""
    return min((row for row in rows if row.baseline and row.typical < lowest.typical), key=TYPICAL, default=None)


def _reports(sources: Sequence[Source]) -> str:
    return "Report" if len(sources) == 1 else f"{len(sources)} reports"


def _of_seeds(row: Row) -> str:
    """` (mean of 3 seeds, sd 0.52)`; empty where there is one seed alone."""
    of = row.over_seeds
    return "" if of is None else f" (mean of {of.runs} seeds, sd {measured(of.deviation, 'perplexity')})"


def _against(row: Row, first: Row) -> str:
    """`, 10.3% [8.9%, 11.6%] below plain`, or above a baseline; empty where the first row is the lowest.

    Over seeds it is the mean.
    """
    change, around = (row.over_seeds or row).change, (row.over_seeds or row).interval
    if change is None or (row.over_seeds and first.baseline):  # which is not what means are against
        return ""
    if change < 0:
        return f", {_percent(-change)}{_interval(-around[1], -around[0]) if around else ''} below {first.name}"
    return f", {_percent(change)}{_interval(*around) if around else ''} above {first.name}" if first.baseline else ""


def _interval(low: float, high: float) -> str:
    return f" [{_percent(low)}, {_percent(high)}]"


def _percent(share: float) -> str:
    return f"{tenths(share)}%"


def _on_new_text(row: Row, gain: str) -> str:
    """`; on new text 5.3%`, where a gain is also that of text which was read before; not of a mean over seeds."""
    change = row.change_on_new_text
    if (
        not gain
        or row.over_seeds
        or (row.change or 0) >= 0
        or change is None
        or not notably_repeated(row.source.metrics)
    ):
        return ""
    return f"; on new text {_percent(-change)}"


def _loses(row: Row) -> bool:
    """Whether counting in what the row reads finds as much, so that its gain is none."""
    return not row.baseline and loses_to_counting(row.source.metrics, row.reported) is not None


def _no_better(row: Row) -> str:
    """`, no better than counting (50.00)`, on new text if that is compared; empty where the row beats it."""
    pair = None if row.baseline else loses_to_counting(row.source.metrics, row.reported)
    if pair is None:
        return ""
    value, limit = pair
    on_new_text = "" if value == row.values["perplexity"] else " on new text"
    return f", no better than counting{on_new_text} ({measured(limit, 'perplexity')})"


def _flaw(row: Row) -> str:
    """` (undertrained)`, what makes less of a gain."""
    return next((f" ({remark.short})" for remark in row.source.remarks if remark.short), "")
