"""Fills the page's template."""

from pathlib import Path
from typing import Any

from markupsafe import Markup

from stages.web.rendering import render as render_template

TEMPLATE = Path(__file__).parent / "templates" / "page.html"
MARK = '<meta name="generator" content="memlm report">'
"""Stands at the head of every page, so that only memlm's own files are written over."""


def render(**values: Any) -> str:
    """The page as HTML."""
    return render_template(TEMPLATE, mark=Markup(MARK), **values)
