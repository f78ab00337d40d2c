"""Form of a text: line lengths, quotes, its own words. If splits differ in form, a memory gains
from layout alone.

Free of torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Figures = Mapping[str, Any]

CURLY = "“”„‟«»‘‛"
STRAIGHT = '"'
"""Quotation marks; the apostrophe ’ is left out, because it also occurs inside words."""
LINE_RATIO = 1.5
"""Ratio of mean line lengths above which the texts are wrapped differently, or only one is wrapped.

Novels of one publisher are within 1.1. A wrapped novel and one with a line per paragraph differ by
more than 4.
"""
QUOTES_MIN = 20
QUOTE_SHARE = 0.5
"""Fewest quotes that show a habit, and the difference of shares that means a different habit."""
DIFFER_IN_FORM = "The texts differ in {what}: {differences}.{learned}"
"""Message about splits that differ in form; `form_words` fills it in."""
LEARNED = " A memory learns that from the text, so part of its gain is this difference."
NOWHERE = "are nowhere in"
"""Words that distinguish the phrase about types from those about layout."""
OWN_TYPES = 0.2
"""Share of a split's types missing from the training text above which the split is another kind of
text.
"""


def counted(texts: Iterable[str]) -> dict[str, int]:
    r"""Counts of line ends and of both kinds of quotes.

    >>> counted(["“So,” he said.\n", 'He said "so".\n'])
    {'line_ends': 2, 'curly_quotes': 2, 'straight_quotes': 2}
    """
    text = "".join(texts)
    num_curly = sum(text.count(quote) for quote in CURLY)
    num_straight = sum(text.count(quote) for quote in STRAIGHT)
    return {
        "line_ends": text.count("\n"),
        "curly_quotes": num_curly,
        "straight_quotes": num_straight,
    }


def differences(split: str, train: Figures, other: Figures, learned: str = "train") -> list[str]:
    """Differences in form between a training text and a split, each as a phrase; empty if they are
    alike.

    Args:
        split: name of the other split.
        train: figures of the training split in the metrics of its tokens; `other`: those of the
        other split.
        learned: the name of the training text.

    >>> train = {"characters": 700, "line_ends": 10, "curly_quotes": 0, "straight_quotes": 40}
    >>> differences("test", train, {"characters": 4000, "line_ends": 10, "curly_quotes": 0, "straight_quotes": 40})
    ['lines of 70 characters in train, of 400 in test']

    >>> records = {"characters": 700, "line_ends": 0, "documents": 10, "curly_quotes": 0, "straight_quotes": 0}
    >>> differences("test", records, records | {"characters": 420, "documents": 6})
    []
    """
    phrases = list[str]()

    train_length = _line_length(train)
    other_length = _line_length(other)
    shorter, longer = sorted((train_length, other_length))
    if longer > LINE_RATIO * shorter:
        phrases.append(
            f"lines of {train_length:,.0f} characters in {learned}, of {other_length:,.0f} in {split}"
        )

    # a split without quotes has no share
    train_share = _curly_share(train)
    other_share = _curly_share(other)
    if (
        train_share is not None
        and other_share is not None
        and abs(train_share - other_share) > QUOTE_SHARE
    ):
        train_quotes = _quotes(train_share)
        other_quotes = _quotes(other_share)
        phrases.append(f"quotes {train_quotes} in {learned}, {other_quotes} in {split}")

    own_types = other.get("own_types", 0.0)
    if own_types > OWN_TYPES:
        phrases.append(f"{own_types:.0%} of the types of {split} {NOWHERE} {learned}")
    return phrases


def _quotes(curly_share: float) -> str:
    """The kind of quotes that a text has."""
    return "“ ”" if curly_share > QUOTE_SHARE else '" "'


def form_words(phrases: Sequence[str]) -> dict[str, str]:
    """Words for `DIFFER_IN_FORM`. If only types differ, they say nothing about a memory's gain.

    Args:
        phrases: from `differences`, at least one.

    >>> DIFFER_IN_FORM.format(**form_words(["31% of the types of test are nowhere in train"]))
    'The texts differ in words: 31% of the types of test are nowhere in train.'
    """
    words_alone = all(NOWHERE in phrase for phrase in phrases)
    what, learned = ("words", "") if words_alone else ("form", LEARNED)
    return {"what": what, "differences": "; ".join(phrases), "learned": learned}


def _line_length(figures: Figures) -> float:
    """Mean characters of a line, its end included; a document counts as at least one line."""
    return float(figures["characters"] / max(1, figures["line_ends"], figures.get("documents", 0)))


def _curly_share(figures: Figures) -> float | None:
    """Share of curly quotes; None for a text with few quotes."""
    quotes = figures["curly_quotes"] + figures["straight_quotes"]
    return figures["curly_quotes"] / quotes if quotes >= QUOTES_MIN else None
