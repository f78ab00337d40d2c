"""A remark on figures: a code, a severity and a sentence."""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

Figures = Mapping[str, Any]
"""Numbers with their units and intervals, as JSON holds them."""
Values = Mapping[str, str]
"""Words that fill the gaps of a sentence, by their names."""
Finding = tuple[str, Values]
"""The code of a remark that figures give reason for, and words for its sentence."""
Condition = Callable[[Figures], Iterable[Finding]]


class Severity(IntEnum):
    """How much a reader must mind a remark."""

    NOTE = 0
    """It explains a figure."""
    CAUTION = 1
    """A figure means less than it seems to."""
    SEVERE = 2
    """A gain is none."""


class Remark(NamedTuple):
    """A remark, ready to be read."""

    code: str
    severity: Severity
    text: str
    short: str = ""
    """The same in a title; empty where titles do not say it."""


class Sentence(NamedTuple):
    """The words for a finding, with gaps."""

    severity: Severity
    text: str
    short: str = ""
