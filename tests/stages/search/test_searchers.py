"""One contract for all searchers; keys are small integers, so ties are many and float32 sums are
exact.
"""

from typing import Any

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.search.distances import pair_scores
from stages.search.exact import ExactSearcher
from stages.search.grouped import GroupedSearcher
from stages.search.keys import StoredKeys
from stages.search.open import PlainSearcher, searcher_of
from stages.search.ranking import best_first
from stages.search.searcher import Searcher
from stages.search.tensor_lists import WithLists
from stages.search.tensor_search import TensorSearch, WithAll
from tests.oracles.search import nearest

DIM = 6
METRICS = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}


def integer_keys(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, (rows, DIM)).astype(np.float32)


def smooth_keys(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32)


def built(factory: str, keys: np.ndarray, metric: str = "l2") -> Any:
    index = faiss.index_factory(keys.shape[1], factory, METRICS[metric])
    if "SQfp16" in factory:
        index.by_residual = False
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        ivf.cp.min_points_per_centroid = 1
    index.train(keys)
    index.add(keys)
    return index


def exact(keys: np.ndarray, metric: str) -> Searcher:
    return ExactSearcher(StoredKeys(keys, rows_per_shard=37), metric)


def grouped(keys: np.ndarray, metric: str) -> Searcher:
    index = built("IVF8,SQfp16", keys, metric)
    return searcher_of(index, metric, probe=8)


def by_faiss(keys: np.ndarray, metric: str) -> Searcher:
    index = built("IVF8,SQfp16", keys, metric)
    return searcher_of(index, metric, probe=8, engine="faiss")


def on_tensors(keys: np.ndarray, metric: str) -> Searcher:
    """The path of a GPU: PyTorch names the CPU like this too."""
    return searcher_of(built("IVF8,Flat", keys, metric), metric, probe=8, device="cpu:0")


def exact_on_tensors(keys: np.ndarray, metric: str) -> Searcher:
    return ExactSearcher(StoredKeys(keys, rows_per_shard=37), metric, device="cpu:0")


def flat(keys: np.ndarray, metric: str) -> Searcher:
    return searcher_of(built("Flat", keys, metric), metric, None)


COMPLETE = pytest.mark.parametrize(
    "make", [exact, flat, grouped, by_faiss, on_tensors, exact_on_tensors]
)
"""Searchers that look at every row."""


@COMPLETE
@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("k", [1, 4, 150, 400])
@pytest.mark.parametrize("exclude", ["none", "self", "wide", "nearly all"])
def test_finds_the_k_best_allowed_rows_with_ties_by_the_smaller(
    make: Any, metric: str, k: int, exclude: str
) -> None:
    keys = integer_keys(300)
    rows = np.arange(0, 300, 12)
    ranges = {
        "none": None,
        "self": np.stack([rows, rows + 1], axis=1),
        "wide": np.stack([rows - 50, rows + 51], axis=1),
        "nearly all": np.stack([rows * 0, rows * 0 + 298], axis=1),
    }[exclude]
    ids, distances = make(keys, metric).search(keys[rows], k, ranges)
    want_ids, want_distances = nearest(keys[rows], keys, k, metric, ranges)
    assert (ids.dtype, distances.dtype) == (np.int64, np.float32)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_array_equal(distances, want_distances.astype(np.float32))


@COMPLETE
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_agrees_with_the_definition_for_any_sizes(make: Any, data: Any) -> None:
    rows = data.draw(st.integers(8, 60), label="rows")
    k = data.draw(st.integers(1, 70), label="k")
    start = data.draw(st.integers(0, rows), label="start")
    width = data.draw(st.integers(0, rows), label="width")
    keys = integer_keys(rows, data.draw(st.integers(0, 99), label="seed"))
    queries = integer_keys(5, 1000)
    ranges = np.tile([start, start + width], (5, 1))
    ids, distances = make(keys, "l2").search(queries, k, ranges)
    want_ids, want_distances = nearest(queries, keys, k, "l2", ranges)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_array_equal(distances, want_distances.astype(np.float32))


@COMPLETE
def test_many_equal_keys_do_not_hide_the_smallest_rows(make: Any) -> None:
    keys = np.concatenate([integer_keys(40), np.ones((200, DIM), np.float32)])
    ids, _ = make(keys, "l2").search(np.ones((3, DIM), np.float32), 5)
    ones = np.flatnonzero((keys == 1).all(axis=1))
    np.testing.assert_array_equal(ids, np.tile(ones[:5], (3, 1)))


@COMPLETE
def test_a_key_far_from_the_origin_is_at_distance_zero_from_itself(make: Any) -> None:
    keys = (smooth_keys(200) + 300).astype(np.float16).astype(np.float32)
    ids, distances = make(keys, "l2").search(keys, 1)
    want_ids, _ = nearest(keys, keys, 1, "l2")
    np.testing.assert_array_equal(distances, 0)
    np.testing.assert_array_equal(ids, want_ids)


@COMPLETE
@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.filterwarnings(
    "ignore:.*invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning"
)
def test_a_query_that_is_not_finite_ends_and_spoils_no_other(
    make: Any, metric: str, number: float
) -> None:
    keys = smooth_keys(300)
    queries = keys[:5].copy()
    queries[2, 1] = number
    ids, _ = make(keys, metric).search(queries, 4)
    want, _ = make(keys, metric).search(keys[:5], 4)
    np.testing.assert_array_equal(np.delete(ids, 2, axis=0), np.delete(want, 2, axis=0))


@COMPLETE
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_what_all_keys_have_in_common_costs_no_digits(make: Any, metric: str) -> None:
    keys = smooth_keys(300) * np.float32(0.01) + np.float32(100)
    if make in (grouped, by_faiss):
        keys = keys.astype(np.float16).astype(np.float32)
    ids, _ = make(keys, metric).search(keys[:50], 5)
    want, _ = nearest(keys[:50], keys, 5, metric)
    assert (ids == want).mean() > (0.99 if metric == "l2" else 0.9)


@pytest.mark.parametrize("make", [exact, grouped, by_faiss])
@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("width", [1, 101])
def test_several_threads_find_what_one_finds(
    make: Any, metric: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, rows = integer_keys(300), np.arange(0, 300, 6)
    ranges = np.stack([rows - width // 2, rows + (width + 1) // 2], axis=1)
    for name, value in {
        "exact.FEW_SCORES": 0,
        "exact.FEW_QUERIES": 0,
        "exact.FEWEST_QUERIES": 2,
        "exact.KEYS": 16,
    }.items():
        monkeypatch.setattr(f"stages.search.{name}", value)
    monkeypatch.setattr("stages.search.grouped.QUERIES", 3)
    monkeypatch.setattr("stages.threads._threads", lambda controller: 3)
    ids, distances = make(keys, metric).search(keys[rows], 9, ranges)
    want_ids, want_distances = nearest(keys[rows], keys, 9, metric, ranges)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_array_equal(distances, want_distances.astype(np.float32))


def test_few_queries_of_many_keys_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = exact(smooth_keys(100), "l2")
    monkeypatch.setattr("stages.search.exact.FEW_SCORES", 1000)
    assert isinstance(searcher, ExactSearcher)
    assert searcher.is_small(10)
    assert not searcher.is_small(11)


def probing_all(keys: np.ndarray, metric: str) -> Searcher:
    return searcher_of(built("IVF8,Flat", keys, metric), metric, probe=8)


def summed_on_tensors(
    queries: np.ndarray, which: np.ndarray, keys: np.ndarray, rows: np.ndarray, metric: str
) -> np.ndarray:
    """Minus inner products of pairs, summed in float32 in the order in which PyTorch sums."""
    assert metric == "ip"
    return (torch.from_numpy(-queries[which]) * torch.from_numpy(keys[rows])).sum(dim=1).numpy()


@pytest.mark.parametrize(
    ("make", "summed"),
    [
        (exact, pair_scores),
        (probing_all, pair_scores),
        (on_tensors, summed_on_tensors),
        (exact_on_tensors, summed_on_tensors),
    ],
)
def test_small_inner_products_of_large_terms_are_no_less_exact(make: Any, summed: Any) -> None:
    random = np.random.default_rng(0)
    keys, queries = (random.standard_normal((n, 64)).astype(np.float32) for n in (4000, 40))
    keys[:, :32] += random.standard_normal((4000, 1)).astype(np.float32) * 1_000_000
    queries *= np.float32(0.1)
    queries[:, :32] -= queries[:, :32].mean(axis=1, keepdims=True)
    which, rows = np.repeat(np.arange(40), 4000), np.tile(np.arange(4000), 40)
    scores = summed(queries, which, keys, rows, "ip").reshape(40, 4000)
    _, want = best_first(scores, np.tile(np.arange(4000), (40, 1)), 64)
    ids, _ = make(keys, "ip").search(queries, 64)
    np.testing.assert_array_equal(ids, want)


def without_links_to(lists: list[int], factory: str, keys: np.ndarray) -> Any:
    """An index whose graph of lists leads to none of these."""
    index = built(factory, keys)
    links = faiss.downcast_index(faiss.extract_index_ivf(index).quantizer).hnsw.neighbors
    links = faiss.rev_swig_ptr(links.data(), links.size())
    links[np.isin(links, lists)] = -1
    return index


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
@pytest.mark.parametrize(
    "factory", ["IVF16_HNSW4,Flat", "IVF16_HNSW4,PQ3x4fs", "PCA6,IVF16_HNSW4,Flat"]
)
def test_lists_that_a_graph_does_not_lead_to_are_read_once_all_are(
    factory: str, device: str
) -> None:
    keys = smooth_keys(400)
    searcher = searcher_of(without_links_to([3, 8], factory, keys), "l2", probe=2, device=device)
    ids, _ = searcher.search(keys[:20], 400)
    assert (np.sort(ids, axis=1) == np.arange(400)).all()


def test_a_query_that_comes_up_short_reads_more_lists() -> None:
    keys = smooth_keys(400)
    searcher = searcher_of(built("IVF16,Flat", keys), "l2", probe=1)
    ids, _ = searcher.search(keys[:20], 400)
    assert (np.sort(ids, axis=1) == np.arange(400)).all()


def test_reading_one_list_finds_that_lists_best() -> None:
    keys = smooth_keys(400)
    index = built("IVF4,Flat", keys)
    ids, _ = searcher_of(index, "l2", probe=1).search(keys, 3)
    index.nprobe = 1
    _, want = index.search(keys, 3)
    assert (np.sort(ids, axis=1) == np.sort(want, axis=1)).mean() > 0.999


@pytest.mark.parametrize("factory", ["IVF8,PQ3x4", "IVF8,SQ8", "IVF8,Flat"])
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_grouped_search_of_codes_gives_what_faiss_gives(factory: str, metric: str) -> None:
    keys = smooth_keys(500)
    index = built(factory, keys, metric)
    searcher = searcher_of(index, metric, probe=3)
    assert isinstance(searcher, GroupedSearcher)
    _, distances = searcher.search(keys[:60], 7)
    index.nprobe = 3
    want, _ = index.search(keys[:60], 7)
    np.testing.assert_allclose(distances, want, rtol=1e-4, atol=1e-4)
    assert searcher.lossless == (factory == "IVF8,Flat")


@pytest.mark.parametrize(
    "factory", ["HNSW8", "IVF8,PQ3x4fs,RFlat", "PCA5,IVF8,Flat", "SQ8", "IVF8_HNSW4,Flat"]
)
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_other_kinds_find_most_and_leave_out_what_is_excluded(factory: str, metric: str) -> None:
    keys, rows = smooth_keys(400), np.arange(0, 400, 10)
    searcher = searcher_of(built(factory, keys, metric), metric, probe=8)
    ranges = np.stack([rows - 30, rows + 31], axis=1)
    ids, distances = searcher.search(keys[rows], 8, ranges)
    want, _ = nearest(keys[rows], keys, 8, metric, ranges)
    assert not ((ids >= ranges[:, :1]) & (ids < ranges[:, 1:])).any()
    assert np.mean([len(np.intersect1d(a, b)) / 8 for a, b in zip(ids, want, strict=True)]) > 0.6
    rising = distances if metric == "l2" else -distances
    assert (np.diff(rising, axis=1) >= 0).all()


@pytest.mark.parametrize("factory", ["SQ8", "IVF8,PQ3x4fs"])
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_neighbours_come_nearest_first_in_whatever_order_an_engine_finds_them(
    factory: str, metric: str
) -> None:
    """A build of FAISS by cuVS was seen to give them unsorted."""
    keys = smooth_keys(300)
    index = built(factory, keys, metric)
    want = searcher_of(index, metric, probe=8).search(keys[:40], 8)
    order, search = np.random.default_rng(0), index.search

    def unsorted(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        distances, rows = search(queries, k)
        places = order.permuted(np.tile(np.arange(k), (len(queries), 1)), axis=1)
        return np.take_along_axis(distances, places, axis=1), np.take_along_axis(
            rows, places, axis=1
        )

    index.search = unsorted
    found = searcher_of(index, metric, probe=8).search(keys[:40], 8)
    assert not (np.diff(index.search(keys[:40], 8)[0], axis=1) >= 0).all(axis=1).any()
    for one, right in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, right)


@pytest.mark.parametrize("factory", ["HNSW4", "IVF16,PQ3x4fs"])
def test_other_kinds_give_up_only_when_no_allowed_row_is_left(factory: str) -> None:
    keys = smooth_keys(300)
    searcher = searcher_of(built(factory, keys), "l2", probe=1)
    assert isinstance(searcher, PlainSearcher)
    ids, distances = searcher.search(keys[:5], 300, np.tile([10, 20], (5, 1)))
    assert (np.sort(ids[:, :290], axis=1) == np.delete(np.arange(300), range(10, 20))).all()
    assert (ids[:, 290:] == -1).all()
    assert (distances[:, 290:] == np.inf).all()


@pytest.mark.parametrize("make", [grouped, by_faiss, on_tensors])
@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("k", [1, 9, 400])
@pytest.mark.parametrize("width", [0, 1, 151])
def test_long_lists_in_pieces_give_what_whole_ones_give(
    make: Any, metric: str, k: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, rows = integer_keys(300), np.arange(0, 300, 6)
    ranges = np.stack([rows - width // 2, rows - width // 2 + width], axis=1)
    monkeypatch.setattr("stages.search.blocks.PIECE_BYTES", 7 * 4 * DIM)
    monkeypatch.setattr("stages.search.tensors.RESIDENT_ELSEWHERE", 0)
    monkeypatch.setattr("stages.search.tensors.PIECE_NUMBERS", 40 * DIM)
    ids, distances = make(keys, metric).search(keys[rows], k, ranges)
    want_ids, want_distances = nearest(keys[rows], keys, k, metric, ranges)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_array_equal(distances, want_distances.astype(np.float32))


def test_blocks_of_queries_give_what_one_block_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = smooth_keys(200)
    searcher, ranges = grouped(keys, "l2"), np.stack([np.arange(200), np.arange(200) + 1], axis=1)
    whole = searcher.search(keys, 3, ranges)
    monkeypatch.setattr("stages.search.searcher.BLOCK_BYTES", 7 * (8 * DIM + 24 * 3))
    parts = searcher.search(keys, 3, ranges)
    np.testing.assert_array_equal(whole[0], parts[0])
    np.testing.assert_array_equal(whole[1], parts[1])


def test_a_great_many_equal_keys_are_searched_for_few_queries_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = np.concatenate([integer_keys(40), np.ones((200, DIM), np.float32)])
    queries = np.ones((50, DIM), np.float32)
    searcher, at_once = grouped(keys, "l2"), list[int]()
    find = GroupedSearcher._find

    def counted(self: Any, queries: Any, *others: Any) -> Any:
        at_once.append(len(queries))
        return find(self, queries, *others)

    whole = searcher.search(queries, 5)
    monkeypatch.setattr(GroupedSearcher, "_find", counted)
    monkeypatch.setattr("stages.search.grouped.MOST_PAIRS", 3000)
    parts = searcher.search(queries, 5)
    assert min(at_once) < 15
    np.testing.assert_array_equal(whole[0], parts[0])
    np.testing.assert_array_equal(whole[1], parts[1])


ON_A_DEVICE = pytest.mark.parametrize("make", [on_tensors, exact_on_tensors])


@ON_A_DEVICE
@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("width", [3, 81])
def test_a_device_computes_the_same_in_small_pieces(
    make: Any, metric: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, rows = smooth_keys(200), np.arange(0, 200, 4)
    ranges = np.stack([rows - width // 2, rows + width // 2 + 1], axis=1)
    whole = make(keys, metric).search(keys[rows], 3, ranges)
    queries: list[int] = []
    for comparison in (WithAll, WithLists):

        def counted(self: Any, which: slice, count: int, nearest: Any = comparison.nearest) -> Any:
            queries.append(which.stop - which.start)
            return nearest(self, which, count)

        monkeypatch.setattr(comparison, "nearest", counted)
    for name, value in {
        "tensors.SCORES": 500,
        "tensors.NUMBERS": 30,
        "tensors.PIECE_NUMBERS": 40 * DIM,
        "tensors.RESIDENT_ELSEWHERE": 100 * DIM * 4,
        "tensor_lists.BATCH": 300,
        "tensor_lists.BROUGHT": 10,
        "tensor_search.FINISHED": 2,
    }.items():
        monkeypatch.setattr(f"stages.search.{name}", value)
    parts = make(keys, metric).search(keys[rows], 3, ranges)
    assert len(queries) > 4 and max(queries) < 30
    np.testing.assert_array_equal(whole[0], parts[0])
    np.testing.assert_array_equal(whole[1], parts[1])


@ON_A_DEVICE
@pytest.mark.parametrize("k", [1, 7, 250])
@pytest.mark.parametrize("spare", [0, 1, 28])
def test_a_device_finds_among_a_great_many_equal_keys(
    make: Any, k: int, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = np.concatenate([integer_keys(40), np.ones((300, DIM), np.float32), integer_keys(40)])
    queries = np.concatenate([np.ones((20, DIM), np.float32), integer_keys(20)])
    monkeypatch.setattr("stages.search.tensor_search.SPARE", spare)
    monkeypatch.setattr("stages.search.tensor_search.slack", lambda k: 1)
    monkeypatch.setattr("stages.search.tensors.NUMBERS", 1000)
    ids, distances = make(keys, "l2").search(queries, k)
    want_ids, want_distances = nearest(queries, keys, k, "l2", None)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_allclose(distances, want_distances)


@ON_A_DEVICE
def test_only_queries_that_may_have_missed_a_row_are_searched_for_again(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = np.concatenate([smooth_keys(300), np.full((50, DIM), 9, np.float32)])
    queries = np.concatenate([keys[:20], keys[-2:]])
    tries: list[tuple[int, int]] = []
    run = TensorSearch.run

    def counted(self: TensorSearch, *others: Any) -> None:
        tries.append((len(self.queries), self.count))
        run(self, *others)

    monkeypatch.setattr(TensorSearch, "run", counted)
    ids, _ = make(keys, "l2").search(queries, 4)
    assert tries == [(22, 32), (2, 351)]
    np.testing.assert_array_equal(ids[-2:], np.tile(np.arange(300, 304), (2, 1)))


@ON_A_DEVICE
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_the_largest_half_precision_numbers_give_no_others_than_numbers(
    make: Any, metric: str
) -> None:
    keys = np.sign(smooth_keys(100)) * np.float32(65504)
    keys[:50] *= np.float32(0.5)
    _, distances = make(keys, metric).search(keys[:60], 5)
    _, want = nearest(keys[:60], keys, 5, metric)
    np.testing.assert_allclose(distances, want, rtol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_keys_are_read_once_for_single_queries_and_found_as_before(metric: str) -> None:
    """Keys stay in memory after a search for few queries, if they are few."""
    keys = smooth_keys(120)
    queries = smooth_keys(3, seed=1)
    wanted = exact(keys, metric).search(queries, 7)
    stored, read = StoredKeys(keys, rows_per_shard=37), []
    searcher = ExactSearcher(stored, metric)
    each = stored.each
    object.__setattr__(stored, "each", lambda *given: read.append(1) or each(*given))
    for row in range(3):
        ids, distances = searcher.search(queries[row : row + 1], 7)
        np.testing.assert_array_equal(ids[0], wanted[0][row])
        np.testing.assert_array_equal(distances[0], wanted[1][row])
    assert len(read) == 1
