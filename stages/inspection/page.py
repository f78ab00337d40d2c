"""An inspected passage as a web page, complete in itself: no script, nothing from elsewhere."""

import math
from pathlib import Path

from stages.inspection.inspect import Inspected, TokenView
from stages.numbers import number

TEMPLATE = "passage.html"
FULL = math.log(10)
"""Nats of gain or loss at which a token has its full colour: ten times as likely."""
SMALL = 0.0005
"""Probabilities below it are told by their size."""


def page(found: Inspected) -> str:
    """The page; what comes from a corpus is escaped."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {one.__name__: one for one in (strength, shown, probability, setting)}
    return environment.get_template(TEMPLATE).render(found=found, columns=list(found.tokens[0].columns))


def strength(token: TokenView) -> int:
    """How strongly a token is coloured, 0 to 100."""
    return round(100 * min(1.0, abs(token.gain) / FULL))


def shown(text: str) -> str:
    """A token by itself, white space spelled out."""
    return text.strip() or repr(text)[1:-1]


def probability(value: float) -> str:
    """`0.7296`, `3.0e-06`, `0`."""
    if value == 0:
        return "0"
    return f"{value:.4f}" if value >= SMALL else f"{value:.1e}"


def setting(value: float | str) -> str:
    """A number of a reading, `2,000` or `6.535`; or a word."""
    return value if isinstance(value, str) else number(value)
