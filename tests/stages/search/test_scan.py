import numpy as np
import pytest
import torch

from stages.search import scan, tiles
from stages.search.ranking import unpacked
from stages.search.scan import KeyBlock, QueryBlock, Scratch, add_products, squared_lengths


def block(keys: np.ndarray, origin: np.ndarray) -> KeyBlock:
    known = KeyBlock(np.arange(len(keys)) * 2, keys, np.empty(len(keys), np.float32))
    squared_lengths(keys, origin, known.lengths, Scratch())
    return known


def scores_of(queries: np.ndarray, keys: np.ndarray, metric: str) -> np.ndarray:
    wide, far = queries.astype(np.float64), keys.astype(np.float64)
    return ((wide[:, None] - far) ** 2).sum(-1) if metric == "l2" else -wide @ far.T


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("far", [0, 30, 1000])
def test_a_bound_leaves_out_none_of_the_k_best(metric: str, far: float) -> None:
    random = np.random.default_rng(0)
    keys = (random.standard_normal((500, 16)) + far).astype(np.float32)
    queries, origin = keys[:20] + np.float32(0.1), keys.mean(axis=0)
    asked, known = QueryBlock(queries, origin, metric, None), block(keys, origin)
    bounds = asked.bounds(known, 7)
    (pairs,) = asked.within([(np.arange(20), slice(0, 500))], known, bounds, Scratch())
    scores, rows = unpacked(pairs.packed)
    true = scores_of(queries, keys, metric)
    ends = np.cumsum(pairs.counts)[:-1]
    for query, (found, named) in enumerate(
        zip(np.split(scores, ends), np.split(rows, ends), strict=True)
    ):
        best = np.argsort(true[query])[:7]
        assert set(best * 2) <= set(named)
        assert len(named) < 50
        np.testing.assert_allclose(found, true[query, named // 2], rtol=1e-5)


@pytest.mark.parametrize("width", [3, 200])
def test_a_bound_counts_rows_that_may_be_seen_alone(width: int) -> None:
    random = np.random.default_rng(0)
    keys = random.standard_normal((300, 8)).astype(np.float32)
    queries, start = keys[:10], np.arange(10) * 2
    exclude = np.stack([start, start + width], axis=1)
    asked, known = QueryBlock(queries, keys[0], "l2", exclude), block(keys, keys[0])
    (pairs,) = asked.within(
        [(np.arange(10), slice(0, 300))], known, asked.bounds(known, 5), Scratch()
    )
    scores, rows = unpacked(pairs.packed)
    owners = np.repeat(np.arange(10), pairs.counts)
    hidden = (rows == -1) | np.isinf(scores)
    assert (np.bincount(owners[~hidden]) >= 5).all()
    assert not ((rows >= exclude[owners, 0]) & (rows < exclude[owners, 1])).any()


def test_keys_that_are_too_few_bound_nothing() -> None:
    keys = np.ones((4, 3), np.float32)
    asked = QueryBlock(keys[:2], keys[0], "l2", None)
    assert np.isinf(asked.bounds(block(keys, keys[0]), 5)).all()


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_products_have_all_digits_whatever_torch_may_leave_out(precision: str) -> None:
    random = np.random.default_rng(0)
    queries, keys = (random.standard_normal((rows, 128)).astype(np.float32) for rows in (64, 300))
    table, before = np.full((64, 310), 7, np.float32), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        add_products(queries, keys, table[:, :300])
    finally:
        torch.set_float32_matmul_precision(before)
    want = queries.astype(np.float64) @ keys.T.astype(np.float64) + 7
    np.testing.assert_allclose(table[:, :300], want, rtol=1e-5, atol=1e-4)
    assert (table[:, 300:] == 7).all()


def test_tiles_of_queries_give_what_all_together_give(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    asked, known = QueryBlock(keys, keys[0], "l2", None), block(keys, keys[0])
    which, bounds = np.array([3, 8, 9, 20, 33]), asked.bounds(known, 4)
    everything, scratch = [(which, slice(0, 50))], Scratch()
    (whole,) = asked.within(everything, known, bounds, scratch)
    monkeypatch.setattr(tiles, "TILE_SCORES", 100)
    monkeypatch.setattr(scan, "FLAGS", 100)
    parts = list(asked.within(everything, known, bounds, scratch))
    assert [len(part.which) for part in parts] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate([part.packed for part in parts]), whole.packed)
    np.testing.assert_array_equal(np.concatenate([part.counts for part in parts]), whole.counts)
