"""Charts as data; `stages.charts.figure` draws them."""

import csv
import io
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any


def slug(text: str) -> str:
    """A text as part of a file name: lower-case letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "figure"


Numbers = list[Sequence[Any]]
"""The column names of a table, then its rows."""


def csv_text(numbers: Sequence[Sequence[Any]]) -> str:
    """A table as CSV; floats with all digits, None as an empty field."""
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(numbers)
    return sink.getvalue()


@dataclass(frozen=True)
class Line:
    """Points (x, y) from left to right; points that are not finite are left out."""

    label: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    look: int | None = None
    """Number of the line's colour and sign; None: its place among the lines."""

    @property
    def finite(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if y is not None and math.isfinite(y)]


@dataclass(frozen=True)
class Level:
    """A horizontal line across the chart, for the model without memory; values above its double are
    cut off.
    """

    label: str
    value: float


@dataclass(frozen=True)
class Lines:
    """Lines over a number, and the names of both axes."""

    lines: Sequence[Line]
    across: str
    up: str
    ticks: Sequence[float] | None = None
    """Ticks of the horizontal axis, which is then logarithmic if they span a wide range; None: at
    round numbers.
    """
    percent: bool = False
    """Whether numbers on the vertical axis are shares."""
    even: bool = False
    """Whether the vertical axis is always linear."""
    level: Level | None = None

    @property
    def empty(self) -> bool:
        return not any(line.finite for line in self.lines)

    @property
    def numbers(self) -> Numbers:
        points = [(line.label, *point) for line in self.lines for point in line.points]
        return [("line", self.across, self.up), *points]


@dataclass(frozen=True)
class Point:
    """A named point; it is left out if one of its numbers is not known."""

    label: str
    x: float | None
    y: float | None


@dataclass(frozen=True)
class Points:
    """Named points over a number; the horizontal axis is logarithmic if they span a wide range."""

    points: Sequence[Point]
    across: str
    up: str
    percent: bool = False
    """Whether numbers on the vertical axis are shares."""

    @property
    def known(self) -> list[tuple[str, float, float]]:
        """Label, x and y of the points that are drawn."""
        return [(p.label, p.x, p.y) for p in self.points if p.x is not None and p.y is not None]

    @property
    def empty(self) -> bool:
        return not self.known

    @property
    def numbers(self) -> Numbers:
        return [("point", self.across, self.up), *((p.label, p.x, p.y) for p in self.points)]


@dataclass(frozen=True)
class Series:
    """One value for each group, or for each bin of a histogram; None if there is none."""

    label: str
    values: Sequence[float | None]
    intervals: Sequence[tuple[float, float] | None] = ()
    """Confidence intervals of bars; empty if not known."""


@dataclass(frozen=True)
class Bars:
    """Groups of bars from zero, up or down."""

    groups: Sequence[str]
    series: Sequence[Series]
    across: str
    up: str
    signed: bool = True
    """Whether values are changes, written with their sign."""
    decimals: int | None = None
    """Decimals of the values at bars, as in the table beside; None: 4 digits."""
    muted: Collection[str] = ()
    """Groups that others are compared with: their bars are grey."""

    @property
    def empty(self) -> bool:
        return all(value is None for series in self.series for value in series.values)

    @property
    def numbers(self) -> Numbers:
        bars = [
            (
                part.label,
                group,
                value,
                *((part.intervals[place] if part.intervals else None) or (None, None)),
            )
            for part in self.series
            for place, (group, value) in enumerate(zip(self.groups, part.values, strict=True))
        ]
        return [("series", self.across, self.up, "low", "high"), *bars]


@dataclass(frozen=True)
class Histogram:
    """Shares of each bin between two edges, one outline for each series, and a mean."""

    edges: Sequence[float]
    series: Sequence[Series]
    mean: float
    across: str

    @property
    def empty(self) -> bool:
        return not self.series

    @property
    def numbers(self) -> Numbers:
        parts = [
            (part.label, *ends, share)
            for part in self.series
            for ends, share in zip(pairwise(self.edges), part.values, strict=True)
        ]
        return [("series", "from", "to", "share"), *parts]


@dataclass(frozen=True)
class Side:
    """One side of a heat map: its name, and a label for each value; without labels, values are only
    counted.
    """

    name: str
    labels: Sequence[str]
    turned: bool = False
    """Whether labels are rotated to read upwards."""


@dataclass(frozen=True)
class SmallerIsBetter:
    """Colours from the smallest value, finer near it, to `limit`; a value above it is worse than no
    memory.
    """

    limit: float
    label: str = ""
    """Label of the limit; empty if no value is better than no memory."""


@dataclass(frozen=True)
class Share:
    """Colours from 0 to 1, and the labels of both ends."""

    zero: str
    one: str


@dataclass(frozen=True)
class HeatMap:
    """A value above 0 for each cell, `values[column][row]`, rows from the bottom; infinite if there
    is none.
    """

    values: Sequence[Sequence[float]]
    across: Side
    up: Side
    colours: SmallerIsBetter | Share

    @property
    def empty(self) -> bool:
        return not any(math.isfinite(value) for column in self.values for value in column)

    @property
    def numbers(self) -> Numbers:
        rows = [label or str(place) for place, label in enumerate(self.up.labels)]
        columns = zip(self.across.labels, self.values, strict=True)
        return [(self.across.name, *rows), *((label, *values) for label, values in columns)]


@dataclass(frozen=True)
class Box:
    """One node of a graph: two lines of text, its sources in the same graph, and its style."""

    key: str
    head: str
    foot: str
    sources: Sequence[str]
    look: str = ""


@dataclass(frozen=True)
class Graph:
    """A graph of boxes and their sources; each box comes after its sources."""

    boxes: Sequence[Box]

    @property
    def empty(self) -> bool:
        return not self.boxes

    @property
    def numbers(self) -> Numbers:
        return [
            ("box", "made from"),
            *((box.key, source) for box in self.boxes for source in box.sources),
        ]


@dataclass(frozen=True)
class Chart:
    """A plot with a title and a caption."""

    name: str
    """Name of the chart's files, without suffix."""
    title: str
    caption: str
    """The finding in one or two sentences; also the alternative text of the drawing."""
    plot: Lines | Points | Bars | Histogram | HeatMap | Graph

    @property
    def csv(self) -> str:
        """The drawn numbers as CSV."""
        return csv_text(self.plot.numbers)

    def labelled(self, label: str) -> "Chart":
        """The same chart with a label in title and name, to be shown next to charts of its kind."""
        return replace(self, name=f"{self.name}-{slug(label)}", title=f"{label}: {self.title}")
