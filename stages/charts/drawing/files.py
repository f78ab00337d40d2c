"""The figures of a report: each as SVG and PNG, its numbers as CSV."""

from collections.abc import Callable, Iterable
from pathlib import Path

from stages.charts.data import Chart
from stages.charts.drawing.draw import figures

Add = Callable[[str], Path]
"""Announces a file of the report, by its path in there; gives the path to write to."""


def write_figures(charts: Iterable[Chart], add: Add) -> list[str]:
    """`figures/NAME.svg`, `.png` and `.csv` of each chart with something to see; gives the files."""
    files = []
    for figure in figures(charts):
        contents = {"svg": figure.svg.encode(), "png": figure.png, "csv": figure.csv.encode()}
        for suffix, content in contents.items():
            files.append(f"figures/{figure.name}.{suffix}")
            add(files[-1]).write_bytes(content)
    return files
