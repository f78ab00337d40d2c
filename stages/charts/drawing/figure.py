"""A figure: what is drawn, and the numbers that it is drawn from."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

STYLE = Path(__file__).parent / "figure.css"
MARK = "drawn by memlm"
"""Stands in every SVG, so that only memlm's own files are written over."""


def slug(text: str) -> str:
    """A text as part of a file's name: small letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "figure"


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table as CSV; floats with all their digits, None as nothing."""
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows([columns, *rows])
    return sink.getvalue()


@dataclass(frozen=True)
class Figure:
    """One drawing of `width` x `height` user units."""

    name: str
    """Of its files, without suffix; no two figures of a page share it."""
    title: str
    caption: str
    """What to see, in a sentence or two; also what is read out in place of the drawing."""
    width: float
    height: float
    elements: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """Its numbers, all of them even where the drawing shows fewer."""

    @property
    def csv(self) -> str:
        return csv_text(self.columns, self.rows)

    @property
    def inline(self) -> str:
        """The drawing as an element of a page that has the style."""
        labelled = f'role="img" aria-labelledby="{self.name}-title {self.name}-caption"'
        return self._svg(f'class="drawing" style="--natural: {self.width:g}px" {labelled}', "")

    @property
    def svg(self) -> str:
        """The drawing as a file of its own, its style inside."""
        size = f'width="{self.width:g}" height="{self.height:g}"'
        style = f"<!-- {MARK} --><style>{STYLE.read_text('utf-8')}</style>"
        background = '<rect class="paper" width="100%" height="100%"/>'
        return self._svg(f'xmlns="http://www.w3.org/2000/svg" {size}', style + background) + "\n"

    def _svg(self, attributes: str, head: str) -> str:
        words = (
            f'<title id="{self.name}-title">{escape(self.title)}</title>'
            f'<desc id="{self.name}-caption">{escape(self.caption)}</desc>'
        )
        box = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        return f"<svg {attributes} {box}>{words}{head}{''.join(self.elements)}</svg>"
