"""Search by FAISS's loops finds what search by lists finds, to the last bit."""

from typing import Any

import faiss
import numpy as np
import pytest

from stages.search.faiss_lists import FaissLists
from stages.search.grouped import FAISS_THREADS, Engine, GroupedSearcher
from stages.search.open import searcher_of
from stages.threads import in_turn

DIM, LISTS, PROBE = 100, 16, 4
"""With this width FAISS sums float16 keys in another order than float32 keys."""


def lists_of(keys: np.ndarray, factory: str, metric: int = faiss.METRIC_L2) -> Any:
    index = faiss.index_factory(keys.shape[1], factory, metric)
    index.by_residual = False
    index.train(keys)
    index.add(keys)
    return index


def random_keys(rows: int) -> np.ndarray:
    keys = np.random.default_rng(0).standard_normal((rows, DIM))
    return keys.astype(np.float16).astype(np.float32)


def searcher(index: Any, engine: Engine, metric: str = "l2") -> GroupedSearcher:
    made = searcher_of(index, metric, PROBE, engine=engine)
    assert isinstance(made, GroupedSearcher)
    return made


def calls_of_faiss(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The flags of complete queries, call after call."""
    calls: list[np.ndarray] = []
    nearest = FaissLists.nearest

    def recorded(self: FaissLists, *arguments: Any) -> Any:
        result = nearest(self, *arguments)
        calls.append(result.complete)
        return result

    monkeypatch.setattr(FaissLists, "nearest", recorded)
    return calls


@pytest.mark.parametrize("factory", ["IVF16,Flat", "IVF16,SQfp16"])
@pytest.mark.parametrize("k", [1, 20, 2000])
@pytest.mark.parametrize("width", [None, 1, 40])
def test_both_engines_find_the_same(
    factory: str, k: int, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = random_keys(3000)
    index = lists_of(keys, factory)
    noise = np.random.default_rng(1).standard_normal((150, DIM)).astype(np.float32)
    queries = keys[:150] + np.float32(0.1) * noise
    first = np.arange(150)
    exclude = None if width is None else np.stack([first, first + width], axis=1)

    want_rows, want_distances = searcher(index, "lists").search(queries, k, exclude)
    calls = calls_of_faiss(monkeypatch)
    rows, distances = searcher(index, "faiss").search(queries, k, exclude)
    np.testing.assert_array_equal(rows, want_rows)
    np.testing.assert_array_equal(distances, want_distances)
    assert calls[0].mean() > 0.9


def test_queries_with_many_equal_rows_are_left_to_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = random_keys(1000)
    keys[500:900] = keys[7]
    calls = calls_of_faiss(monkeypatch)
    rows, _ = searcher(lists_of(keys, "IVF16,Flat"), "faiss").search(keys[[7, 3]], 5)
    assert rows[0].tolist() == [7, 500, 501, 502, 503]
    assert calls[0].tolist() == [False, True]


def test_a_block_of_queries_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = random_keys(1000)
    index = lists_of(keys, "IVF16,Flat")
    want, _ = searcher(index, "lists").search(keys[:90], 3)
    monkeypatch.setattr("stages.search.grouped.block_bytes", lambda: 20 * 40 * (3 + 4 + PROBE))
    calls = calls_of_faiss(monkeypatch)
    rows, _ = searcher(index, "faiss").search(keys[:90], 3)
    np.testing.assert_array_equal(rows, want)
    assert [len(complete) for complete in calls] == [20, 20, 20, 20, 10]


@pytest.mark.parametrize(
    ("threads", "factory", "metric", "width", "by_faiss"),
    [
        (FAISS_THREADS, "IVF16,Flat", "l2", 1, True),
        (FAISS_THREADS - 1, "IVF16,Flat", "l2", 1, False),
        (FAISS_THREADS, "IVF16,SQ8", "l2", 1, False),
        (FAISS_THREADS, "IVF16,Flat", "ip", 1, False),
        (FAISS_THREADS, "IVF16,Flat", "l2", 500, False),
    ],
)
def test_many_threads_take_faiss_where_it_can_give_the_same(
    threads: int,
    factory: str,
    metric: str,
    width: int,
    by_faiss: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = random_keys(1000)
    metrics = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}
    made = searcher(lists_of(keys, factory, metrics[metric]), "auto", metric)
    monkeypatch.setattr("stages.threads._threads", lambda controller: threads)
    calls = calls_of_faiss(monkeypatch)
    first = np.arange(50)
    made.search(keys[:50], 3, np.stack([first, first + width], axis=1))
    assert bool(calls) == by_faiss


def test_lists_without_a_number_are_left_out() -> None:
    keys = random_keys(500)
    made = searcher(lists_of(keys, "IVF16,Flat"), "faiss")
    nearest_lists = np.full((10, PROBE), -1)
    nearest_lists[:, 1] = 3
    result = FaissLists(made.ivf, made.lists).nearest(keys[:10], nearest_lists, 400, None, in_turn)
    size = int(made.lists.sizes[3])
    assert np.isin(result.ids[:, :size], made.lists.ids(3)).all()
    assert (result.ids[:, size:] == -1).all()
    assert np.isinf(result.scores[:, size:]).all()
    assert result.complete.all()
