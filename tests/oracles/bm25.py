"""BM25 and Algorithm 1 as defined, one query and one document at a time, in float64.

`okapi_scores` is rank-bm25 itself.
"""

from collections import Counter
from math import log

import numpy as np
from rank_bm25 import BM25Okapi


def lucene_scores(documents: list[list[int]], queries: list[list[int]] | None = None) -> np.ndarray:
    """Scores [Q, S] of every document for every query (a row), which are the documents unless
    others are given.
    """
    queries = documents if queries is None else queries
    k1, b = 0.9, 0.4
    counts = [Counter(document) for document in documents]
    holding = Counter(term for count in counts for term in count)
    mean_length = sum(map(len, documents)) / len(documents)
    scores = np.zeros((len(queries), len(documents)))
    for i, query in enumerate(queries):
        for j, count in enumerate(counts):
            room = k1 * (1 - b + b * len(documents[j]) / mean_length)
            for term in query:
                idf = log(1 + (len(documents) - holding[term] + 0.5) / (holding[term] + 0.5))
                scores[i, j] += idf * count[term] / (count[term] + room)
    return scores


def okapi_scores(documents: list[list[int]]) -> np.ndarray:
    """Scores [S, S] of every document (a row) for every document."""
    bm25 = BM25Okapi(documents)
    return np.stack([bm25.get_scores(document) for document in documents])


def matches(scores: np.ndarray, k: int, floor: float) -> list[list[int]]:
    """The k best other documents of each that score above `floor`, equal ones by id.

    Scores are compared as float32: sums of the same numbers in another order are equal.
    """
    rounded = scores.astype(np.float32)
    return [
        sorted(
            (j for j in range(len(row)) if j != i and row[j] > floor), key=lambda j: (-row[j], j)
        )[:k]
        for i, row in enumerate(rounded)
    ]


def algorithm_1(matches: list[list[int]], permutation: list[int]) -> tuple[list[int], list[bool]]:
    """Order of the segments, and for each but the first whether it is a match of the one before."""
    free, order, linked = set(range(len(matches))), [], []
    while free:
        following = [match for match in matches[order[-1]] if match in free] if order else []
        order.append(following[0] if following else next(s for s in permutation if s in free))
        linked.append(bool(following))
        free.remove(order[-1])
    return order, linked[1:]
