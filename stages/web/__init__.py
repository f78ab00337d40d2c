"""The frame of every web page, its colours and tables, and the filling of a template with escaped data."""

import base64
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stages.charts.figure import Figure
from stages.charts.palette import page_style
from stages.numbers import measured, number, tenths

FRAME = Path(__file__).parent / "templates"


def render(template: Path, **values: Any) -> str:
    """A template that extends `frame.html`, filled: a page complete in itself, as HTML."""
    # Strict: a name that is misspelled in a template is an error, not a blank.
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
        "strength": strength,
    }
    return environment.get_template(template.name).render(chart_style=Markup(page_style()), **values)


FULL = math.log(10)
"""Nats of gain or loss at which a token has its full colour: ten times as likely."""


def strength(nats: float) -> int:
    """How strongly a token is coloured, 0 to 100."""
    return round(100 * min(1.0, abs(nats) / FULL))


def data_uri(text: str, kind: str) -> str:
    """A file inside a link."""
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def _drawing(figure: Figure) -> Markup:
    """An SVG, which escapes its words itself."""
    return Markup(figure.inline)


SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\N{NO-BREAK SPACE}": "⍽"}


def spelled(text: str) -> str:
    r"""A token by itself, without the white space around it; white space alone is spelled in signs.

    >>> spelled(" cat"), spelled("  "), spelled("\n")
    ('cat', '␣␣', '⏎')
    """
    return text.strip() or "".join(SIGNS.get(letter, letter) for letter in text)


def passage(text: str) -> str:
    r"""A token within its passage: line breaks with a sign before them, and a sign for what is white space alone.

    >>> passage(" cat"), passage(" "), passage("\n  ")
    (' cat', '␣', '⏎\n␣␣')
    """
    shown = text if text.strip() else "".join(SIGNS.get(c, c) for c in text.replace("\n", "\0")).replace("\0", "\n")
    return shown.replace("\n", "⏎\n")
