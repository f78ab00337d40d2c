"""A chart drawn: as an element of a page, as a file, as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from stages.charts.data import Chart
from stages.charts.drawing import shapes
from stages.charts.drawing.palette import file_style

MARK = "drawn by memlm"
"""Stands in every SVG, so that only memlm's own files are written over."""
FONT = Path(__file__).parent / "font" / "DejaVuSans.ttf"
"""Latin, Greek and Cyrillic: a picture has words on a machine without fonts too."""
TITLE_HEIGHT = 30.0
TITLE_LETTER = 8.0
"""Width of a letter of a title, about."""
PIXELS = 2
"""Pixels of a picture for each user unit."""
NARROW = 432
"""Least width of a drawing on a page, and the least share of its width for a wide one: else words are too small."""
WIDE = 640
LEAST_SHARE = 0.85


@dataclass(frozen=True)
class Drawing:
    """`width` x `height` user units, and what is drawn there."""

    width: float
    height: float
    elements: Sequence[str]


@dataclass(frozen=True)
class Figure:
    """A chart, and its drawing."""

    chart: Chart
    drawing: Drawing

    @property
    def name(self) -> str:
        return self.chart.name

    @property
    def title(self) -> str:
        return self.chart.title

    @property
    def caption(self) -> str:
        return self.chart.caption

    @property
    def csv(self) -> str:
        return self.chart.numbers.csv

    @property
    def wide(self) -> bool:
        """Whether a column of a page is too narrow for it."""
        return self.drawing.width > WIDE

    @property
    def inline(self) -> str:
        """An element of a page that has the style."""
        width, height = self.drawing.width, self.drawing.height
        least = LEAST_SHARE * width if self.wide else min(width, NARROW)
        style = f'style="--natural: {width:g}px; --least: {least:g}px"'
        labelled = f'role="img" aria-labelledby="{self.name}-title {self.name}-caption"'
        return self._svg(f'class="drawing" {style} {labelled} viewBox="0 0 {width:g} {height:g}"', "")

    @property
    def svg(self) -> str:
        """A file of its own: its style inside, on white, under its title."""
        width, height = max(self.drawing.width, TITLE_LETTER * len(self.title)), self.drawing.height + TITLE_HEIGHT
        size = f'width="{width:g}" height="{height:g}" viewBox="0 {-TITLE_HEIGHT:g} {width:g} {height:g}"'
        style = f"<!-- {MARK} --><style>{file_style()}</style>"
        paper = shapes.rectangle((0, -TITLE_HEIGHT), width, height, "paper")
        title = shapes.text(width / 2, 22 - TITLE_HEIGHT, self.title, "title", "middle")
        return self._svg(f'xmlns="http://www.w3.org/2000/svg" {size}', style + paper + title) + "\n"

    @property
    def png(self) -> bytes:
        """The same as a picture, in the project's own font; what that lacks comes from the machine's fonts."""
        import resvg_py

        return bytes(resvg_py.svg_to_bytes(svg_string=self.svg, zoom=PIXELS, font_files=[str(FONT)]))

    def _svg(self, attributes: str, head: str) -> str:
        words = (
            f'<title id="{self.name}-title">{escape(self.title)}</title>'
            f'<desc id="{self.name}-caption">{escape(self.caption)}</desc>'
        )
        return f"<svg {attributes}>{words}{head}{''.join(self.drawing.elements)}</svg>"
