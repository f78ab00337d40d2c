"""Neighbours among the tokens of each sentence's own pairs, against a loop in float64."""

from typing import Any

import numpy as np
import pytest

from stages.retrieval.pair_search import PairKeys, PairSearch

NOTHING: Any = None
D, K = 3, 4


def slow(query: np.ndarray, found: PairKeys, metric: str) -> tuple[list[int], list[float]]:
    keys, query = found.keys.astype(np.float64), query.astype(np.float64)
    order = ((keys - query) ** 2).sum(1) if metric == "l2" else -keys @ query
    best = sorted(range(len(order)), key=lambda place: (order[place], found.rows[place]))[:K]
    missing = K - len(best)
    distances = [float(order[place] if metric == "l2" else -order[place]) for place in best]
    far = np.inf if metric == "l2" else -np.inf
    return [int(found.rows[place]) for place in best] + [-1] * missing, distances + [far] * missing


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_each_query_finds_the_nearest_tokens_of_its_own_sentence_alone(metric: str) -> None:
    random = np.random.default_rng(0)
    # Small whole numbers: distances are exact, and many are equal.
    sizes, first = (9, 0, 2, 30), iter([50, 0, 10, 200])
    found = [
        PairKeys(next(first) + random.permutation(size), random.integers(-2, 3, (size, D)).astype(np.float32))
        for size in sizes
    ]
    sentences = np.array([3, 0, 1, 2, 3, 0, 2])
    queries = random.integers(-2, 3, (len(sentences), D)).astype(np.float32)
    search = PairSearch(NOTHING, NOTHING, NOTHING, 5, K, metric)
    ids, distances = search.nearest(queries, sentences, found)
    for number, sentence in enumerate(sentences):
        wanted, far = slow(queries[number], found[sentence], metric)
        assert (ids[number].tolist(), distances[number].tolist()) == (wanted, far)
    nowhere, _ = search.nearest(queries[:2], np.array([0, 0]), [found[1]])
    assert nowhere.tolist() == [[-1] * K] * 2
