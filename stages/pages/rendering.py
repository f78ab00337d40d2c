"""Fills the page's template; whatever comes from data is escaped by it."""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stages.charts.drawing.figure import Figure
from stages.charts.drawing.palette import page_style
from stages.numbers import measured, number

TEMPLATES = Path(__file__).parent / "templates"
MARK = '<meta name="generator" content="memlm report">'
"""Stands at the head of every page, so that only memlm's own files are written over."""


def render(**values: Any) -> str:
    """The page as HTML."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "measured": measured,
        "data_uri": data_uri,
        "drawing": _drawing,
        "plain": repr,
    }
    return environment.get_template("page.html").render(mark=Markup(MARK), chart_style=Markup(page_style()), **values)


def data_uri(text: str, kind: str) -> str:
    """A file inside a link."""
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def _drawing(figure: Figure) -> Markup:
    """An SVG, which escapes its words itself."""
    return Markup(figure.inline)
