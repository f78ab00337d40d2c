"""Remarks on figures: a code, a severity and a sentence each; and every threshold of the remarks.

Thresholds that figures themselves need are in `stages.metrics`.
"""

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


HARDLY_BETTER = 0.95
"""Share of the trigram's perplexity above which a model is hardly better than counting."""
TIES_COUNTING = 0.98
"""Share of its control's perplexity above which a row that beats it ties with counting, as far as can be told."""
FEW_UNITS = 20
"""Documents, or blocks, below which an interval is rough."""
UNEVEN = 1.25
"""Factor between perplexities of valid and test above which one is notably harder. Those of WikiText and Penn Treebank
lie within 1.05 of each other; splits of a few thousand tokens within this one, by chance."""
MANY_ENDS = 0.02
"""Share of tokens that end documents above which they lower a perplexity notably: of lines, which end with a line
break anyway, four in a hundred are worth a fifth of it."""
MATCHED = 0.01
"""Share of tokens in long matches with text that was read before, from which on a report says so."""
MANY_UNKNOWN = 0.01
"""Share of unknown tokens above which a perplexity means another thing than it seems to."""
NOTABLY_REPEATED = 0.05
"""Share of the scored tokens in paragraphs that were read before, from which on a title tells the gain on new text."""
NOTABLE_GAIN = 0.005
"""Share of perplexity that the last doubling of an amount must have gained for more of it to be worth its time."""
