"""Choice of passages by BM25."""

import numpy as np
import pytest
import torch
from rank_bm25 import BM25Okapi

from stages.encoding.encode import SplitReader
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.open_book.choice import Bm25Choice, Query
from stages.open_book.passages import cut_passages
from tests.oracles.passages import lucene_scores

TYPES = 30


@pytest.mark.parametrize("scoring", ["okapi", "lucene"])
def test_passages_are_ranked_as_rank_bm25_and_the_formula_rank_them(scoring: str) -> None:
    random = np.random.default_rng(0)
    ids = random.zipf(1.3, 600).clip(max=TYPES) - 1
    passages = cut_passages(np.arange(0, 601, 60), np.arange(7, 600, 7), 14)
    texts = [ids[a:b].tolist() for a, b in zip(passages.bounds, passages.bounds[1:], strict=False)]
    scored = random.integers(0, TYPES, 100)
    corpus = Corpus({"test/ids": scored}, eos=0)
    reader = SplitReader(corpus, WindowSettings(8, 8), False, torch.device("cpu"), "fp32")
    queries = [Query(start, start + 9) for start in range(0, 90, 10)]

    choice = Bm25Choice.of(ids, passages, TYPES, scoring)
    hidden = np.array([[number, number + 2] for number in range(len(queries))])
    chosen = choice.choose(reader, "test", queries, 5, hidden)

    for place, query in enumerate(queries):
        terms = scored[query.start : query.stop].tolist()
        scores = np.array(lucene_scores(terms, texts))
        if scoring == "okapi":
            scores = BM25Okapi(texts).get_scores(terms)
        allowed = np.delete(np.arange(len(texts)), [place, place + 1])
        best = allowed[np.argsort(-scores[allowed].astype(np.float32), kind="stable")[:5]]
        assert chosen.numbers[place].tolist() == best.tolist()
        np.testing.assert_allclose(chosen.scores[place], scores[best], rtol=1e-5)


def test_a_query_without_a_shared_token_finds_nothing() -> None:
    ids = np.array([1, 2, 3, 4])
    passages = cut_passages(np.array([0, 4]), np.array([4]), 2)
    corpus = Corpus({"test/ids": np.array([5, 6])}, eos=0)
    reader = SplitReader(corpus, WindowSettings(8, 8), False, torch.device("cpu"), "fp32")
    choice = Bm25Choice.of(ids, passages, 7)
    chosen = choice.choose(reader, "test", [Query(0, 2)], 2, np.zeros((1, 2), np.int64))
    assert chosen.numbers.tolist() == [[-1, -1]]
    assert chosen.scores.tolist() == [[0, 0]]
