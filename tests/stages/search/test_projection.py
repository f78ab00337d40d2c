"""Searches that look at short vectors first find what exact search finds."""

import faiss
import numpy as np
import pytest

from stages.search import projection
from stages.search.grouped import MOST_NEAREST, GroupedSearcher
from stages.search.open import searcher_of
from stages.search.projection import WIDTH, learn_axes, shortened
from tests.oracles.search import nearest

DIM, LISTS, K = 3 * WIDTH, 8, 5


def structured(count: int, noise: float, seed: int = 0) -> np.ndarray:
    """Keys near a plane of eight dimensions, each tenth the same as the one before; far from 0."""
    random = np.random.default_rng(seed)
    keys = random.standard_normal((count, 8)) @ np.random.default_rng(9).standard_normal((8, DIM))
    keys += noise * random.standard_normal(keys.shape) + 3
    keys[9::10] = keys[8::10]
    return keys.astype(np.float16).astype(np.float32)


def over_lists(keys: np.ndarray, half: bool, metric: str = "l2") -> GroupedSearcher:
    """A searcher that looks at all lists, whose keys are stored in half precision or not."""
    faiss_metric = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    quantizer = faiss.IndexFlat(DIM, faiss_metric)
    quantizer.add(keys[:LISTS])
    if half:
        halves = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(quantizer, DIM, LISTS, halves, faiss_metric, False)
    else:
        index = faiss.IndexIVFFlat(quantizer, DIM, LISTS, faiss_metric)
    index.train(keys)
    index.add(keys)
    searcher = searcher_of(index, metric, LISTS)
    assert isinstance(searcher, GroupedSearcher)
    return searcher


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("width", [0, 3, 200])
def test_what_is_found_is_what_exact_search_finds(half: bool, width: int) -> None:
    keys = structured(1500, noise=0.3)
    queries = np.concatenate([keys[::50], structured(20, 0.3, seed=1)])
    searcher, first = over_lists(keys, half), np.arange(len(queries)) * 20
    exclude = np.stack([first, first + width], 1) if width else None
    ids, distances = searcher.search(queries, K, exclude)
    want, far = nearest(queries, keys, K, "l2", exclude)
    np.testing.assert_array_equal(ids, want)
    np.testing.assert_allclose(distances, far, rtol=1e-5, atol=1e-5)
    assert searcher._short is not None


def test_few_whole_keys_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, taken = structured(2000, noise=0.3), list[int]()
    whole = projection.ShortKeys.whole
    monkeypatch.setattr(
        projection.ShortKeys, "whole", lambda own, at: (taken.append(len(at)), whole(own, at))[1]
    )
    over_lists(keys, True).search(keys[:40], K)
    assert 40 * K <= sum(taken) < 40 * len(keys) / 10


@pytest.mark.parametrize(
    ("keys", "metric", "k"), [(0.3, "ip", K), (30.0, "l2", K), (0.3, "l2", MOST_NEAREST + 1)]
)
def test_whole_keys_are_compared_where_short_vectors_would_not_pay(
    keys: float, metric: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        projection.ShortKeys, "whole", lambda *_: pytest.fail("short vectors were compared")
    )
    held = structured(1000, noise=keys)
    ids, _ = over_lists(held, True, metric).search(held[:30], k)
    np.testing.assert_array_equal(ids, nearest(held[:30], held, k, metric)[0])


def test_short_vectors_that_leave_many_pairs_are_given_up_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, taken = structured(2000, noise=0.3), list[int]()
    whole = projection.ShortKeys.whole
    monkeypatch.setattr(
        projection.ShortKeys, "whole", lambda own, at: (taken.append(len(at)), whole(own, at))[1]
    )
    monkeypatch.setattr(projection, "MOST_LEFT", 0.0)
    searcher, seen = over_lists(keys, True), list[int]()
    for first in (0, 40):
        queries = keys[first : first + 40]
        np.testing.assert_array_equal(
            searcher.search(queries, K)[0], nearest(queries, keys, K, "l2")[0]
        )
        assert searcher._short is None
        seen.append(len(taken))
    # each thread may have begun a group before the first was counted
    assert seen[0] == seen[1] < LISTS


def test_short_vectors_are_as_long_and_no_farther_apart() -> None:
    keys = structured(300, noise=1.0)
    moved = keys - keys.mean(0)
    axes = learn_axes(keys, keys.mean(0))
    assert axes is not None
    short = shortened(moved, axes)
    np.testing.assert_allclose(
        np.linalg.norm(short, axis=1), np.linalg.norm(moved, axis=1), rtol=1e-5
    )
    between, whole = (
        np.linalg.norm(some[:100, None] - some[None, :100], axis=-1) for some in (short, keys)
    )
    assert (between <= whole + 1e-3).all() and between.mean() > 0.9 * whole.mean()
