"""An inspected passage as a web page, complete in itself: no script, nothing from elsewhere."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.inspection.inspect import Inspected, TokenView
from stages.inspection.selection import KINDS, Chosen
from stages.numbers import number, probability

TEMPLATE = Path(__file__).parent / "passage.html"
FULL = math.log(10)
"""Nats of gain or loss at which a token has its full colour: ten times as likely."""


def page(found: Inspected) -> str:
    """The page; what comes from a corpus is escaped."""
    return _rendered(title(found), found)


def _rendered(title: str, found: Inspected, **values: Any) -> str:
    from stages.web import render

    columns = list(found.tokens[0].columns)
    shown = {"coloured": coloured, "strength": strength, "probability": probability, "setting": setting}
    return render(TEMPLATE, title=title, found=found, columns=columns, **shown, **values)


@dataclass(frozen=True)
class ChosenPassage:
    """A passage of a page of several."""

    chosen: Chosen
    found: Inspected

    @property
    def heading(self) -> str:
        """`Memory helps most: tokens 20,000 to 20,031 of test, 14.2 nats`."""
        one = self.chosen
        where = f"tokens {one.start:,} to {one.start + len(self.found.tokens) - 1:,} of {self.found.split}"
        return f"{KINDS[one.kind]}: {where}, {number(round(one.nats, 1))} nats"


def page_of_passages(passages: Sequence[ChosenPassage], report: str) -> str:
    """The page of several passages, of which there is one at least, each with a place of its own."""
    first = passages[0].found
    heading = f"{len(passages)} passage{'s'[: len(passages) != 1]} of {first.split}: who predicted each token"
    return _rendered(heading, first, passages=passages, report=report)


def title(found: Inspected) -> str:
    """`Who predicted tokens 20,000 to 20,023 of test: model, datastore or cache`."""
    last = found.start + len(found.tokens) - 1
    *others, latest = ["model", *found.memory_words]
    asked = f"{', '.join(others)} or {latest}" if others else latest
    return f"Who predicted tokens {found.start:,} to {last:,} of {found.split}: {asked}"


def coloured(found: Inspected) -> list[str]:
    """Probe columns that colour tokens: numbers from 0 to 1, unlike distances."""
    names = found.tokens[0].columns
    return [name for name in names if all(0 <= token.columns[name] <= 1 for token in found.tokens)]


def strength(token: TokenView) -> int:
    """How strongly a token is coloured, 0 to 100."""
    return round(100 * min(1.0, abs(token.gain) / FULL))


def setting(value: float | str) -> str:
    """A number of a reading, `2,000` or `6.535`; or a word."""
    return value if isinstance(value, str) else number(value)
