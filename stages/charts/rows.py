"""The first chart of a page: each row of a report beside the model alone and counting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stages.charts.data import Bars, Chart, Series
from stages.charts.reported import measure, scored

MAX_BARS = 8
"""Bars that stay readable side by side."""
Interval = tuple[float, float]


class Bar(NamedTuple):
    """A row, its perplexity, and the interval of its difference to the first row."""

    row: str
    perplexity: float
    interval: Interval | None
    is_control: bool = False
    """Whether memories are compared with it."""


def rows_charts(metrics: Mapping[str, Any]) -> Iterator[Chart]:
    """Make `perplexity-by-row`: the first row, the best control by counting, then each memory.

    Nothing is made for a report of one row, or where a perplexity is not known. Of more than
    MAX_BARS rows the first ones are shown, which are those that were asked for.
    """
    bars = _bars(metrics)
    if len(bars) < 2:
        return

    what = measure(metrics)
    names = [bar.row for bar in bars]
    perplexities = [bar.perplexity for bar in bars]
    intervals = [bar.interval for bar in bars]
    muted = [bar.row for bar in bars if bar.is_control]
    values = ", ".join(f"{bar.row} {bar.perplexity:,.2f}" for bar in bars)
    yield Chart(
        "perplexity-by-row",
        f"{what} of {scored(metrics)}",
        f"{what}: {values}. "
        f"Whiskers are 95 % intervals of the difference to {names[0]}; shorter is better.",
        Bars(
            names,
            [Series("perplexity", perplexities, intervals)],
            "",
            what.lower(),
            signed=False,
            decimals=2,
            muted=muted,
        ),
    )


def _bars(metrics: Mapping[str, Any]) -> Sequence[Bar]:
    """See `rows_charts`; empty if no perplexity is known."""
    rows = [row for row in metrics["rows"] if row.get("perplexity") is not None]
    if not rows:
        return []
    first, *memories = rows
    baseline = Bar(first["row"], first["perplexity"], None, is_control=True)
    bars = [baseline]

    controls = [row["control"]["perplexity"] for row in memories if row.get("control")]
    if controls:
        bars.append(Bar("counting", min(controls), None, is_control=True))

    changes = _change_intervals(metrics)
    for row in memories:
        interval = _in_perplexity(changes.get(row["row"]), baseline)
        bars.append(Bar(row["row"], row["perplexity"], interval))
    return bars[:MAX_BARS]


def _change_intervals(metrics: Mapping[str, Any]) -> dict[str, Sequence[float] | None]:
    """Intervals of the change of each row against the first, in shares of perplexity.

    Changes against the row of another report are left out: that row has no bar.
    """
    if metrics.get("baseline"):
        return {}
    intervals = metrics.get("change_intervals") or {"rows": ()}
    return {row["row"]: row["interval"] for row in intervals["rows"]}


def _in_perplexity(change: Sequence[float] | None, first: Bar) -> Interval | None:
    """An interval of a change as perplexities.

    >>> _in_perplexity([-0.5, 0.25], Bar("plain", 40.0, None))
    (20.0, 50.0)
    """
    if change is None:
        return None
    low, high = change
    return first.perplexity * (1 + low), first.perplexity * (1 + high)
