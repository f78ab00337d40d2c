"""Neighbours among the tokens of each sentence's own pairs, against a loop in float64."""

from typing import Any

import numpy as np
import pytest

from stages.retrieval.pair_search import PairKeys, PairSearch, SimilarSentences
from tests.oracles.bm25 import lucene_scores

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
        PairKeys(
            next(first) + random.permutation(size),
            random.integers(-2, 3, (size, D)).astype(np.float32),
        )
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


END, V = 0, 30


def sentences(count: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [(1 + random.zipf(1.6, random.integers(1, 9)) % (V - 1)).tolist() for _ in range(count)]


def ended(some: list[list[int]]) -> list[np.ndarray]:
    return [np.array([*one, END]) for one in some]


def index_of(some: list[list[int]]) -> SimilarSentences:
    ids = ended(some)
    return SimilarSentences(
        np.concatenate(ids), np.append(0, np.cumsum([len(one) for one in ids])), V
    )


def best(scores: np.ndarray, count: int, without: int | None = None) -> list[int]:
    rounded = scores.astype(np.float32)
    found = [number for number in range(len(scores)) if rounded[number] > 0 and number != without]
    found = sorted(found, key=lambda number: (-rounded[number], number))[:count]
    return found + [-1] * (count - len(found))


def test_other_sentences_find_what_the_definition_finds() -> None:
    documents, queries = sentences(60, 0), [*sentences(20, 1), [V - 1]]
    scores = lucene_scores(documents, queries)
    found = index_of(documents).find(ended(queries), 5)
    assert found.tolist() == [best(row, 5) for row in scores]
    assert (found == -1).any()


def test_a_sentence_finds_the_same_alone_and_among_others() -> None:
    documents, queries = index_of(sentences(60, 0)), ended(sentences(20, 1))
    together = documents.find(queries, 4)
    for number, query in enumerate(queries):
        assert documents.find([query], 4).tolist() == together[number : number + 1].tolist()


def test_a_sentence_does_not_find_itself_but_its_double() -> None:
    documents = [*sentences(30, 0), sentences(30, 0)[7]]
    scores = lucene_scores(documents)
    found = index_of(documents).find(ended(documents), 3, np.arange(31))
    assert found.tolist() == [best(row, 3, number) for number, row in enumerate(scores)]
    assert found[7, 0] == 30 and found[30, 0] == 7
