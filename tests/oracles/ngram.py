"""Interpolated Witten-Bell, as the recursion is written: dicts, one token at a time."""

from collections import Counter
from collections.abc import Iterable, Sequence

Event = tuple[tuple[int, ...], int]
"""The tokens before a counted one, as many as the longest context has, and the token."""


def events(piece: Sequence[int], n: int, start: int) -> list[Event]:
    """Every token of a piece, behind n - 1 times `start`, after the n - 1 tokens before it."""
    stream = [start] * (n - 1) + list(piece)
    return [
        (tuple(stream[place : place + n - 1]), stream[place + n - 1]) for place in range(len(piece))
    ]


def probability(
    word: int, context: Sequence[int], counted: Iterable[Event], vocabulary: int
) -> float:
    """p(word | context), from the events that are counted."""
    counted, p = list(counted), 1 / vocabulary
    for length in range(len(context) + 1):
        tail = tuple(context[len(context) - length :])
        after = Counter(
            token for before, token in counted if before[len(before) - length :] == tail
        )
        p = _mixed(after, word, p)
    return p


def _mixed(after: Counter[int], word: int, below: float) -> float:
    """What stands after a context, and as if each of its types had been a token of the shorter
    context's.
    """
    total, types = sum(after.values()), len(after)
    return (after[word] + types * below) / (total + types) if total else below


def counting_on(piece: Sequence[int], n: int, start: int, vocabulary: int) -> list[float]:
    """Of each token of a piece, from the events before it alone."""
    own = events(piece, n, start)
    return [
        probability(word, context, own[:place], vocabulary)
        for place, (context, word) in enumerate(own)
    ]
