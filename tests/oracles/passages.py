"""Passages of a text and their BM25 scores, worked out one token at a time."""

import math
from collections.abc import Sequence


def slow_passages(
    documents: Sequence[int], paragraphs: Sequence[int], longest: int
) -> list[tuple[int, int]]:
    """Ranges of at most `longest` tokens: whole paragraphs of a document together, or pieces of
    one.

    Args:
        documents: where documents start, and the end of the text.
        paragraphs: where paragraphs end.
    """
    ends = {*paragraphs, *documents}
    found = []
    start = 0
    while start < documents[-1]:
        document_end = min(end for end in documents if end > start)
        last = min(start + longest, document_end)
        # The latest end of a paragraph within reach, else as far as the passage reaches.
        inside = [end for end in ends if start < end <= last]
        stop = max(inside, default=last)
        found.append((start, stop))
        start = stop
    return found


def lucene_scores(
    query: Sequence[int], passages: Sequence[Sequence[int]], k1: float = 0.9, b: float = 0.4
) -> list[float]:
    """BM25 of each passage, as Lucene 8 computes it without its factor k1 + 1."""
    mean = sum(len(passage) for passage in passages) / len(passages)
    scores = []
    for passage in passages:
        score = 0.0
        for term in query:
            holding = sum(term in other for other in passages)
            tf = passage.count(term)
            idf = math.log(1 + (len(passages) - holding + 0.5) / (holding + 0.5))
            score += idf * tf / (tf + k1 * (1 - b + b * len(passage) / mean))
        scores.append(score)
    return scores
