"""The frame of every web page, its colours and tables, and the filling of a template with escaped
data.
"""

import base64
import math
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stages.artifacts.durable import write_atomically
from stages.charts.figure import Figure
from stages.charts.palette import page_style
from stages.errors import UsageError
from stages.numbers import number, tenths

FRAME = Path(__file__).parent / "templates"
MARK = '<meta name="generator" content="memlm'
"""Begins a line at the head of every page, so that only memlm's own pages are written over."""
PAGES = (".html", ".htm")
"""Endings of the names of pages; under any other a browser does not show one."""
HEAD = 2000
"""Characters of a file in which its mark stands."""


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
        "tenths": tenths,
        "data_uri": data_uri,
        "drawing": _drawing,
        "plain": repr,
        "spelled": spelled,
        "passage": passage,
        "strength": strength,
    }
    return _COMMANDS.sub(
        _spelled_command,
        environment.get_template(template.name).render(chart_style=Markup(page_style()), **values),
    )


_COMMANDS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters of texts that command a terminal, or change the writing direction of a page."""


def _spelled_command(command: re.Match[str]) -> str:
    return command[0].encode("unicode_escape").decode()


def check_page_file(option: str, path: Path, mark: str = MARK) -> None:
    """Raises UsageError if a file may not be written there: another's file, a folder, no folder
    around it, or a page under a name that is that of no page.

    Args:
        mark: at the head of every such file; that of pages by default.
    """
    if not path.parent.is_dir():
        raise UsageError(
            f"{option} {path}: there is no folder {path.parent}; make it, or name another."
        )
    if mark == MARK and path.suffix.lower() not in PAGES:
        raise UsageError(f"{option} {path}: a page is written as HTML; name it {path.stem}.html.")
    if path.exists() and not marked(path, mark):
        raise UsageError(
            f"{option} {path} is there and was not written by memlm; name another file."
        )


def write_page(option: str, path: Path, html: str) -> bool:
    """Write a page as one file; returns whether it takes the place of another page.

    Raises: UsageError as `check_page_file`; OSError.
    """
    check_page_file(
        option, path
    )  # making a page takes minutes, in which somebody may have saved something there
    replaces = path.exists() and path.read_bytes() != html.encode()
    write_atomically(path, html)
    return replaces


def marked(path: Path, mark: str) -> bool:
    """Whether a file has a mark at its head."""
    try:
        with path.open(encoding="utf-8") as file:
            return mark in file.read(HEAD)
    except (OSError, UnicodeDecodeError):
        return False


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
    r"""A token within its passage: line breaks with a sign before them, and a sign for what is
    white space alone.

    >>> passage(" cat"), passage(" "), passage("\n  ")
    (' cat', '␣', '⏎\n␣␣')
    """
    shown = (
        text
        if text.strip()
        else "".join(SIGNS.get(c, c) for c in text.replace("\n", "\0")).replace("\0", "\n")
    )
    return shown.replace("\n", "⏎\n")
