"""What a grouped search holds and looks at; what it finds is in the contract of all searchers."""

import tracemalloc
from typing import Any

import faiss
import numpy as np
import pytest

from stages.search import blocks
from stages.search import grouped as module
from stages.search.bounds import ScoreBounds
from stages.search.grouped import GroupedSearcher
from stages.search.open import searcher_of
from stages.search.scan import Scratch
from stages.threads import in_turn
from tests.oracles.search import nearest

DIM = 4


def over_clusters(keys: np.ndarray, centroids: np.ndarray) -> GroupedSearcher:
    """A searcher that looks at all lists, one of each cluster."""
    quantizer = faiss.IndexFlatL2(DIM)
    quantizer.add(centroids)
    index = faiss.IndexIVFFlat(quantizer, DIM, len(centroids))
    index.add(keys)
    searcher = searcher_of(index, "l2", len(centroids))
    assert isinstance(searcher, GroupedSearcher)
    return searcher


def clusters(lists: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and centroids; lists lie side by side, so that the nearest rows are in the nearest."""
    random = np.random.default_rng(0)
    centroids = np.zeros((lists, DIM), np.float32)
    centroids[:, 0] = np.arange(lists) * 100
    numbers = np.repeat(np.arange(lists), rows)
    return (centroids[numbers] + random.standard_normal((lists * rows, DIM))).astype(
        np.float32
    ), centroids


def test_lists_that_a_quantizer_does_not_find_bound_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph may not lead to all lists: the last places then hold -1."""
    keys, centroids = clusters(16, 20)
    searcher, nearest_lists = over_clusters(keys, centroids), GroupedSearcher._nearest_lists

    def without_some(self: Any, *given: Any) -> np.ndarray:
        found = nearest_lists(self, *given)
        found[:, 6:] = -1
        return found

    def dirty(shape: Any, dtype: Any = float) -> np.ndarray:
        return np.full(shape, -99999, dtype)

    monkeypatch.setattr(GroupedSearcher, "_nearest_lists", without_some)
    monkeypatch.setattr(np, "empty", dirty)
    ids, _ = searcher.search(keys[:40], 110)
    monkeypatch.undo()
    want, _ = nearest(keys[:40], keys, 110, "l2")
    np.testing.assert_array_equal(ids, want)


def test_bounds_take_little_memory_however_long_the_lists_are() -> None:
    keys, centroids = clusters(2, 10_000)
    searcher = over_clusters(keys, centroids)
    queries = searcher.block(keys[:2000], None)
    nearest_lists = searcher._nearest_lists(queries.vectors, 2, in_turn)
    tracemalloc.start()
    bounds = ScoreBounds(searcher.blocks).of(queries, nearest_lists, 5, in_turn, Scratch())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(bounds).all()
    assert peak < 10e6


@pytest.mark.parametrize("k", [5, 300])
def test_long_excluded_ranges_are_no_pairs(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest lists of each query are hidden whole; of all its lists it holds few rows that it
    may see.
    """
    keys, centroids = clusters(8, 200)
    searcher, rows = over_clusters(keys, centroids), np.arange(0, 1600, 100)
    exclude = np.stack([rows - 300, rows + 301], axis=1)
    monkeypatch.setattr(module, "MOST_PAIRS", len(rows) * (k + 200))
    at_once, find = list[int](), GroupedSearcher._find

    def counted(self: Any, queries: Any, *others: Any) -> Any:
        at_once.append(len(queries))
        return find(self, queries, *others)

    monkeypatch.setattr(GroupedSearcher, "_find", counted)
    ids, _ = searcher.search(keys[rows], k, exclude)
    want, _ = nearest(keys[rows], keys, k, "l2", exclude)
    np.testing.assert_array_equal(ids, want)
    assert at_once == [len(rows)]


@pytest.mark.parametrize("budget", [0, 3 * 20 * (4 * DIM + 8) + 1, 1 << 20])
def test_keys_of_some_lists_are_kept_as_they_are_compared(
    monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """The first three lists fit where there is room for three and a byte; what is found is the
    same.
    """
    monkeypatch.setattr(module, "HELD_BYTES", budget)
    keys, centroids = clusters(8, 20)
    searcher = over_clusters(keys, centroids)
    want, _ = nearest(keys[:30], keys, 50, "l2")
    np.testing.assert_array_equal(searcher.search(keys[:30], 50)[0], want)
    made: list[int] = []
    widen = blocks.widen
    monkeypatch.setattr(
        blocks, "widen", lambda keys, out: (made.append(len(keys)), widen(keys, out))[1]
    )
    np.testing.assert_array_equal(searcher.search(keys[:30], 50)[0], want)
    assert searcher.blocks.kept == {0: 0, 1 << 20: 8}.get(budget, 3)
    assert sum(made) >= (8 - searcher.blocks.kept) * 20
    assert (sum(made) == 0) == (budget == 1 << 20)
