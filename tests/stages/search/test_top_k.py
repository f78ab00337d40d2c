import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.search import top_k as module
from stages.search.exact import Narrowing
from stages.search.ranking import packed
from stages.search.scan import QueryBlock
from stages.search.top_k import ScoreTable, TooMany, TopKBuffer, runs
from stages.threads import in_turn

PIECES = st.lists(
    st.dictionaries(
        st.integers(0, 5), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), max_size=6)
    ),
    max_size=8,
)
"""Of each piece what some of six queries found: score and row."""


def filled(pieces: list[dict[int, list[tuple[int, int]]]]) -> TopKBuffer:
    found = TopKBuffer(6)
    put(found, pieces)
    return found


def put(found: TopKBuffer, pieces: list[dict[int, list[tuple[int, int]]]]) -> None:
    for piece in pieces:
        pairs = [pair for query in piece for pair in piece[query]]
        scores, rows = (
            np.array([pair[i] for pair in pairs], dtype)
            for i, dtype in ((0, np.float32), (1, np.int64))
        )
        counts = np.array([len(piece[query]) for query in piece], np.int64)
        found.add(np.array(list(piece), np.int64), counts, packed(scores, rows))


@given(pieces=PIECES, k=st.integers(1, 12), table=st.integers(1, 40))
def test_the_best_of_all_pieces_come_first(pieces: list[dict], k: int, table: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TABLE_PAIRS", table)
        scores, rows = filled(pieces).best(k, in_turn)
    for query in range(6):
        pairs = sorted(pair for piece in pieces for pair in piece.get(query, []))[:k]
        want = [*pairs, *[(np.inf, -1)] * (k - len(pairs))]
        assert list(zip(scores[query], rows[query], strict=True)) == want


@given(first=PIECES, second=PIECES, k=st.integers(1, 12))
def test_forgetting_all_but_the_best_changes_no_result(
    first: list[dict], second: list[dict], k: int
) -> None:
    whole, kept = filled(first + second), filled(first)
    before = kept.best(k, in_turn)[0]
    np.testing.assert_array_equal(kept.keep_best(k, in_turn), before[:, -1])
    assert kept.number == 6 * k
    put(kept, second)
    for got, want in zip(kept.best(k, in_turn), whole.best(k, in_turn), strict=True):
        np.testing.assert_array_equal(got, want)


@given(st.lists(st.tuples(st.integers(-5, 50), st.integers(-2, 4)), max_size=8), st.integers(0, 2))
def test_runs_are_ranges_end_to_end(given: list[tuple[int, int]], step: int) -> None:
    starts, lengths = (np.array([one[i] for one in given], np.int64) for i in (0, 1))
    want = [start + step * i for start, length in given for i in range(length)]
    assert runs(starts, lengths, step).tolist() == want


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_without_steps_each_is_repeated(dtype: type) -> None:
    assert runs(np.array([7, 3], dtype), np.array([2, 3], dtype), step=0).tolist() == [
        7,
        7,
        3,
        3,
        3,
    ]


@pytest.mark.parametrize("rank", [1, 3, 9])
@pytest.mark.parametrize("at_a_time", [1, 1 << 18])
def test_the_score_of_a_rank_is_found_among_those_of_a_query(
    rank: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a row put into a cell the first scores count, as many as the cell takes."""
    monkeypatch.setattr(module, "TABLE_SCORES", at_a_time)
    random = np.random.default_rng(0)
    sizes = np.array([[4, 4, 0], [4, 1, 3], [0, 0, 0], [0, 2, 4]])
    table, given = ScoreTable(sizes, rank), np.sort(random.random((12, 4), np.float32), axis=1)
    for cells in ([0, 1, 3], [4, 5, 2], [6, 7, 8, 9], [10, 11]):
        table.put(np.array(cells), given[cells])
    found = table.ranked(in_turn)
    for query, own in enumerate(sizes):
        scores = np.sort(
            np.concatenate([given[3 * query + cell][:size] for cell, size in enumerate(own)])
        )
        assert found[query] == (scores[rank - 1] if len(scores) >= rank else np.inf)


def test_more_pairs_than_it_holds_are_refused() -> None:
    found = TopKBuffer(2, max_pairs=3)
    found.add(np.array([1]), np.array([2]), np.array([7, 8]))
    with pytest.raises(TooMany):
        found.add(np.array([0]), np.array([2]), np.array([7, 8]))
    assert found.number == 2


def test_pieces_without_pairs_take_no_memory() -> None:
    found, everyone = TopKBuffer(1000, max_pairs=10), np.arange(1000)
    found.add(everyone, np.eye(1, 1000, 7, dtype=np.int64)[0], np.array([3]))
    tracemalloc.start()
    for _ in range(200):
        found.add(everyone, np.zeros(1000, np.int64), np.zeros(0, np.int64))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 1 << 16
    np.testing.assert_array_equal(np.flatnonzero(found.best(1, in_turn)[1][:, 0] >= 0), [7])


def test_many_queries_of_a_scan_take_room_only_for_what_they_found() -> None:
    """A scan has a buffer for every 256 queries; room for all pairs of a piece would be 8 MB each."""
    block = QueryBlock(np.zeros((256, 2), np.float32), np.zeros(2, np.float32), "l2", None)
    tracemalloc.start()
    held = [Narrowing(block, 4) for _ in range(10)]
    took = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < len(held) << 16
