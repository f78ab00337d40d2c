"""Remarks on figures, each with a code, a severity and a sentence; and all thresholds of the
remarks.

Thresholds for the figures themselves are in `stages.metrics`.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

Figures = Mapping[str, Any]
"""Numbers with their units and intervals, as JSON."""
Values = Mapping[str, str]
"""Words for the placeholders of a sentence, by name."""
Finding = tuple[str, Values]
"""The code of a remark, and the words for its sentence."""
Condition = Callable[[Figures], Iterable[Finding]]


class Severity(IntEnum):
    """Severity of a remark."""

    NOTE = 0
    """The remark explains a figure."""
    CAUTION = 1
    """A figure means less than it seems to."""
    SEVERE = 2
    """A gain is not real."""


class Remark(NamedTuple):
    """A remark, ready to be read."""

    code: str
    severity: Severity
    text: str
    short: str = ""
    """Short form for titles; empty if titles leave it out."""


HARDLY_BETTER = 0.95
"""Share of the trigram's perplexity above which a model is hardly better than counting."""
FEW_UNITS = 20
"""Number of documents or blocks below which an interval is rough."""
UNEVEN = 1.25
"""Ratio of the perplexities of valid and test above which one is notably harder. For WikiText and
Penn Treebank the ratio is below 1.05; for splits of a few thousand tokens it is below this factor
by chance."""
MANY_ENDS = 0.02
"""Share of ends of documents above which they lower a perplexity notably. If documents are lines,
which end with a line break anyway, four in a hundred lower it by a fifth."""
MATCHED = 0.01
"""Share of tokens in long matches with text that was read before, from which a report mentions it.
"""
MANY_UNKNOWN = 0.01
"""Share of unknown tokens above which a perplexity is misleading."""
NOTABLY_REPEATED = 0.05
"""Share of the scored tokens in repeated paragraphs, from which a title adds the gain on new text.
"""
NOTABLE_GAIN = 0.005
"""Share of perplexity that the last doubling of an amount must gain to make a larger one worth a
try.
"""
