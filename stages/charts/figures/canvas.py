"""What all figures share: their style, their ticks, how a figure is written."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from stages.numbers import number

Add = Callable[[str], Path]
"""Announces a file of the report, by its path in there; gives the path to write to."""

STYLE: dict[Any, Any] = {
    "figure.figsize": (6.4, 4.4),
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "svg.fonttype": "none",
    "svg.hashsalt": "memlm",
}


@contextmanager
def style() -> Iterator[None]:
    """The same look and the same bytes whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def spell_out(axis: Axis, logarithmic: bool) -> None:
    """Tick labels as `number` has them; a logarithmic axis has ticks at 1, 2, 5, 10, 20, …"""
    if logarithmic:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: number(value))


def write_figure(
    figure: Figure, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], add: Add
) -> list[str]:
    """Write a figure as SVG and PNG without a date, and its numbers as CSV; gives the files."""
    files = [f"figures/{name}.{suffix}" for suffix in ("svg", "png", "csv")]
    svg, png, table = (add(file) for file in files)
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(png, format="png", metadata={"Software": None})
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    return files
