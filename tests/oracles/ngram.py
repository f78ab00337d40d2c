"""Interpolated Witten-Bell, as the recursion is written: dicts, one token at a time."""

from collections import Counter
from collections.abc import Sequence


def probability(word: int, context: Sequence[int], text: Sequence[int], start: int, vocabulary: int) -> float:
    """p(word | context), counted in a text that stands behind as many `start` as the context is long."""
    if not context:
        return _mixed(Counter(text), word, 1 / vocabulary)
    stream = [start] * len(context) + list(text)
    after = Counter(
        stream[place + len(context)]
        for place in range(len(text))
        if stream[place : place + len(context)] == list(context)
    )
    return _mixed(after, word, _shorter(word, context, text, start, vocabulary))


def _shorter(word: int, context: Sequence[int], text: Sequence[int], start: int, vocabulary: int) -> float:
    return probability(word, context[1:], text, start, vocabulary)


def _mixed(after: Counter[int], word: int, below: float) -> float:
    """What stands after a context, and as if each of its types had been a token of the shorter context's."""
    total, types = sum(after.values()), len(after)
    return (after[word] + types * below) / (total + types) if total else below
