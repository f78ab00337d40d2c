"""Slow twin of last-word scoring: on the text itself, one passage after the other."""

import math
import re
from collections.abc import Sequence

from tests.oracles.text import WHITE_SPACE, words


def last_word(document: str) -> str | None:
    found = words(document)
    return found[-1] if found else None


def span_by_prefixes(document: str, pieces: Sequence[bytes]) -> tuple[int, int] | None:
    """Tokens of a document's last word: those that share a byte with it; pieces join to the
    document.
    """
    assert b"".join(pieces).decode() == document
    word = last_word(document)
    if word is None:
        return None
    body = re.sub(f"{WHITE_SPACE.pattern}$", "", document)
    end = len(body.encode())
    start = end - len(word.encode())
    before = [len(b"".join(pieces[:i])) for i in range(len(pieces) + 1)]
    inside = [i for i in range(len(pieces)) if max(before[i], start) < min(before[i + 1], end)]
    return inside[0], inside[-1] + 1


def score(
    probabilities: Sequence[Sequence[float]], ids: Sequence[int], spans: Sequence[tuple[int, int]]
) -> dict[str, float]:
    """Sums, and accuracy, from the whole distribution [T, V] of every token; an empty span is no
    passage.
    """
    nll, tokens, passages, right = 0.0, 0, 0, 0
    for start, stop in spans:
        if start == stop:
            continue
        passages += 1
        good = True
        for t in range(start, stop):
            row = list(probabilities[t])
            nll -= math.log(row[ids[t]])
            good = good and row.index(max(row)) == ids[t]
            tokens += 1
        right += good
    return {
        "tokens": tokens,
        "words": passages,
        "nll": nll,
        "accuracy": right / passages,
    }
