"""Similar sentences against BM25 by a slow loop, whose ends do not count."""

import numpy as np

from stages.text.similar import SimilarSentences
from tests.oracles.bm25 import lucene_scores

END, V = 0, 30


def sentences(count: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [(1 + random.zipf(1.6, random.integers(1, 9)) % (V - 1)).tolist() for _ in range(count)]


def ended(some: list[list[int]]) -> list[np.ndarray]:
    return [np.array([*one, END]) for one in some]


def held(some: list[list[int]]) -> SimilarSentences:
    ids = ended(some)
    return SimilarSentences(np.concatenate(ids), np.append(0, np.cumsum([len(one) for one in ids])), V)


def best(scores: np.ndarray, count: int, without: int | None = None) -> list[int]:
    rounded = scores.astype(np.float32)
    found = [number for number in range(len(scores)) if rounded[number] > 0 and number != without]
    found = sorted(found, key=lambda number: (-rounded[number], number))[:count]
    return found + [-1] * (count - len(found))


def test_other_sentences_find_what_the_definition_finds() -> None:
    documents, queries = sentences(60, 0), [*sentences(20, 1), [V - 1]]
    scores = lucene_scores(documents, queries)
    found = held(documents).find(ended(queries), 5)
    assert found.tolist() == [best(row, 5) for row in scores]
    assert (found == -1).any()


def test_a_sentence_finds_the_same_alone_and_among_others() -> None:
    documents, queries = held(sentences(60, 0)), ended(sentences(20, 1))
    together = documents.find(queries, 4)
    for number, query in enumerate(queries):
        assert documents.find([query], 4).tolist() == together[number : number + 1].tolist()


def test_a_sentence_does_not_find_itself_but_its_double() -> None:
    documents = [*sentences(30, 0), sentences(30, 0)[7]]
    scores = lucene_scores(documents)
    found = held(documents).find(ended(documents), 3, np.arange(31))
    assert found.tolist() == [best(row, 3, number) for number, row in enumerate(scores)]
    assert found[7, 0] == 30 and found[30, 0] == 7
