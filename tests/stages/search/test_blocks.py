from typing import Any

import faiss
import numpy as np
import pytest

from stages.search import blocks as module
from stages.search.blocks import ListBlocks, ListQueries
from stages.search.lists import WHOLE, InvertedLists
from stages.search.scan import KeyBlock, Scratch
from stages.threads import in_turn

DIM, ORIGIN = 4, np.full(4, 0.5, np.float32)


class Counted(InvertedLists):
    """Lists that remember which were asked for keys."""

    def __init__(self, ivf: Any) -> None:
        super().__init__(ivf)
        self.read: list[int] = []

    def keys(self, number: int, part: slice = WHOLE) -> np.ndarray:
        self.read.append(number)
        return super().keys(number, part)


@pytest.fixture
def lists() -> Counted:
    keys = np.random.default_rng(0).standard_normal((200, DIM)).astype(np.float32)
    index = faiss.index_factory(DIM, "IVF8,Flat")
    index.cp.min_points_per_centroid = 1
    index.train(keys)
    index.add(keys)
    return Counted(index)


def require_keys(block: KeyBlock, lists: InvertedLists, number: int, part: slice = WHOLE) -> None:
    keys = lists.keys(number, part)
    np.testing.assert_array_equal(block.rows, lists.ids(number, part))
    np.testing.assert_array_equal(block.vectors, keys)
    np.testing.assert_allclose(block.lengths, ((keys - ORIGIN) ** 2).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("kept_bytes", [None, 0, 1 << 20])
def test_several_lists_lie_in_one_block(lists: Counted, kept_bytes: int | None) -> None:
    blocks, scratch = ListBlocks(lists, ORIGIN, kept_bytes), Scratch()
    assert blocks.kept == (8 if kept_bytes else 0)
    for numbers in ([0, 1, 2], [2, 5], [7], [0, 7]):
        block, places = blocks.together(numbers, scratch)
        assert len(places) == len(numbers)
        for number, place in zip(numbers, places, strict=True):
            require_keys(block.part(place), lists, number)


def test_a_kept_list_is_read_once(lists: Counted) -> None:
    size = 8 + 4 * DIM
    blocks, scratch = ListBlocks(lists, ORIGIN, int(lists.sizes[:3].sum()) * size), Scratch()
    assert blocks.kept == 3
    for _ in range(2):
        blocks.together([0, 2], scratch)
        blocks.together([3, 4], scratch)
    assert lists.read == [0, 2, 3, 4, 3, 4]


@pytest.mark.parametrize("kept_bytes", [None, 0])
def test_lengths_are_computed_once_where_lists_are_in_memory(
    lists: Counted, monkeypatch: pytest.MonkeyPatch, kept_bytes: int | None
) -> None:
    computed: list[int] = []
    compute = module.squared_lengths
    monkeypatch.setattr(
        module,
        "squared_lengths",
        lambda keys, *given: (computed.append(len(keys)), compute(keys, *given))[1],
    )
    monkeypatch.setattr(module, "PIECE_BYTES", 7 * 4 * DIM)
    blocks, scratch = ListBlocks(lists, ORIGIN, kept_bytes), Scratch()
    for times in (1, 2):
        for number in range(8):
            for start, (block, _) in zip(
                range(0, 200, 7), blocks.each([number], scratch), strict=False
            ):
                require_keys(block, lists, number, slice(start, start + len(block.rows)))
        assert sum(computed) == 200 * (times if kept_bytes is None else 1)


@pytest.mark.parametrize("kept_bytes", [None, 0])
def test_a_long_list_comes_in_parts(
    lists: Counted, monkeypatch: pytest.MonkeyPatch, kept_bytes: int | None
) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 7 * 4 * DIM)
    blocks = ListBlocks(lists, ORIGIN, kept_bytes)
    np.testing.assert_array_equal(blocks.parts, np.maximum(1, -(-lists.sizes // 7)))
    for number in range(8):
        size = int(lists.sizes[number])
        for first, (block, _) in zip(
            range(0, size, 7), blocks.each([number], Scratch()), strict=True
        ):
            require_keys(block, lists, number, slice(first, first + 7))


@pytest.mark.parametrize("queries", [1, 3, 100])
def test_pairs_of_lists_come_list_after_list(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERIES_SORTED", queries)
    nearest = np.random.default_rng(0).integers(-1, 6, (20, 3))
    visits = ListQueries(nearest, 8, in_turn)
    want = [np.flatnonzero(nearest.ravel() == number).tolist() for number in range(8)]
    assert visits.counts.tolist() == [len(pairs) for pairs in want]
    assert visits.of([1, 2, 5, 7]).tolist() == [*want[1], *want[2], *want[5]]
    assert visits.of([6]).tolist() == []
