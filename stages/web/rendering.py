"""Fills a page's template; whatever comes from data is escaped by it."""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stages.charts.figure import Figure
from stages.charts.palette import page_style
from stages.numbers import measured, number, tenths
from stages.web.tokens import passage, spelled

FRAME = Path(__file__).parent / "templates"


def render(template: Path, **values: Any) -> str:
    """A template that extends `frame.html`, filled: a page complete in itself, as HTML."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, FRAME]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "measured": measured,
        "tenths": tenths,
        "data_uri": data_uri,
        "drawing": _drawing,
        "plain": repr,
        "spelled": spelled,
        "passage": passage,
    }
    return environment.get_template(template.name).render(chart_style=Markup(page_style()), **values)


def data_uri(text: str, kind: str) -> str:
    """A file inside a link."""
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def _drawing(figure: Figure) -> Markup:
    """An SVG, which escapes its words itself."""
    return Markup(figure.inline)
