"""Charts with their drawings: as an element of a page, as an SVG file, as a PNG image."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from stages.charts.data import Chart
from stages.charts.palette import LIGHT, with_variables
from stages.charts.titles import FONT, TITLE_GAP, TITLE_LINE, TITLE_SIZE, title_height, title_lines

if TYPE_CHECKING:
    from stages.charts.drawing import Drawing

MARK = "drawn by memlm"
"""Mark in every SVG, so that only memlm's own files are overwritten."""
NARROW = 432
"""Minimum width of a drawing on a page; for a wide drawing, MIN_SHARE of its width: less would be
unreadable.
"""
WIDE = 640
MIN_SHARE = 0.85

Add = Callable[[str], Path]
"""Registers a file of the report, by its relative path; returns the path to write to."""
POINT = 4 / 3
"""Pixels of a point, in which matplotlib gives lengths."""
SVG = "http://www.w3.org/2000/svg"


@dataclass(frozen=True, repr=False)
class Figure(Chart):
    """A chart with its drawing."""

    @classmethod
    def of(cls, chart: Chart) -> "Figure":
        return cls(chart.name, chart.title, chart.caption, chart.plot)

    def __repr__(self) -> str:
        return f"<memlm picture: {self.title}>"

    def _repr_svg_(self) -> str:
        """The drawing, as shown in a notebook."""
        return self.svg

    @property
    def wide(self) -> bool:
        """Whether the drawing is wider than a column of a page."""
        return self._drawing.width > WIDE

    @property
    def inline(self) -> str:
        """The drawing as an element of a page, with the page's colours."""
        width = self._drawing.width
        min_width = MIN_SHARE * width if self.wide else min(width, NARROW)
        style = f"--natural: {width}px; --least: {min_width:g}px"
        view = f"0 0 {width * POINT:g} {self._drawing.height * POINT:g}"
        attributes = f'class="drawing" style="{style}" viewBox="{view}"'
        return with_variables(self._framed(attributes, self._drawing.element))

    @property
    def svg(self) -> str:
        """The drawing as a separate file: on white, under its title."""
        width = self._drawing.width
        lines = title_lines(self.title, width)
        # the title stands above the drawing, where y is negative
        top = title_height(len(lines))
        height = self._drawing.height + top
        view = f"0 {-top * POINT:g} {width * POINT:g} {height * POINT:g}"
        colour = LIGHT["paper"]
        paper = f'<rect y="{-top}pt" width="{width}pt" height="{height}pt" style="fill: {colour}"/>'

        style = f"font: {TITLE_SIZE}pt {FONT}; text-anchor: middle; fill: {LIGHT['ink']}"
        middle = width / 2
        title = ""
        for place, line in enumerate(lines):
            y = (place + 1) * TITLE_LINE + TITLE_GAP - top - 3
            title += f'<text x="{middle:g}pt" y="{y}pt" style="{style}">{escape(line)}</text>'

        inner = f"<!-- {MARK} -->{paper}{title}{self._drawing.element}"
        attributes = f'xmlns="{SVG}" width="{width}" height="{height}" viewBox="{view}"'
        return self._framed(attributes, inner) + "\n"

    @property
    def png(self) -> bytes:
        """The same drawing as a PNG image."""
        return self._drawing.png

    def _framed(self, attributes: str, inner: str) -> str:
        """A drawing inside an element with title and description, which screen readers read."""
        labels = f"{self.name}-title {self.name}-caption"
        words = (
            f'<title id="{self.name}-title">{escape(self.title)}</title>'
            f'<desc id="{self.name}-caption">{escape(self.caption)}</desc>'
        )
        return f'<svg {attributes} role="img" aria-labelledby="{labels}">{words}{inner}</svg>'

    @cached_property
    def _drawing(self) -> "Drawing":
        return draw(self)


def draw(chart: Chart) -> "Drawing":
    """The drawing of a chart; only this imports matplotlib, so that no other command waits for it."""
    # It says so when it lists fonts or cannot keep their list, which is no concern of the reader.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)

    from stages.charts.drawing import Drawing

    return Drawing(chart)


def figures(charts: Iterable[Chart]) -> list[Figure]:
    """Figures of the charts that are not empty."""
    return [Figure.of(chart) for chart in charts if not chart.plot.empty]


def write_figures(charts: Iterable[Chart], add: Add) -> list[str]:
    """Write `figures/NAME.svg`, `.png` and `.csv` of each chart that is not empty; returns the
    files.
    """
    names = []
    for figure in figures(charts):
        contents = {"svg": figure.svg.encode(), "png": figure.png, "csv": figure.csv.encode()}
        for suffix, content in contents.items():
            name = f"figures/{figure.name}.{suffix}"
            add(name).write_bytes(content)
            names.append(name)
    return names
