"""Pairs as batches and as blocks of a range: rows, masks, and batches cut by tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.examples.batching import by_length, token_batches
from tests.builders.pairs import EOS, made

SMALL = made([3, 1, 5, 2], [2, 4, 1, 6])


def test_a_batch_is_padded_rows_with_their_sources() -> None:
    batch = SMALL.batch(np.array([3, 2]))
    assert batch.targets[0, :2].tolist() == [4, EOS] and batch.targets[1].tolist() == [3] * 4 + [
        EOS
    ]
    assert batch.inputs[1].tolist() == [EOS, 3, 3, 3, 3] and batch.inputs[0, :2].tolist() == [
        EOS,
        4,
    ]
    assert batch.mask is not None and batch.source is not None and batch.source_mask is not None
    assert batch.mask.sum(1).tolist() == [2, 5] and batch.source_mask.sum(1).tolist() == [6, 1]
    assert batch.source[0].tolist() == [104] * 5 + [EOS]
    assert batch.places[:, 0].tolist() == [9, 4]


@given(start=st.integers(0, 11), size=st.integers(1, 11), most=st.integers(1, 30))
def test_blocks_cover_a_range_however_it_is_cut(start: int, size: int, most: int) -> None:
    stop = min(11, start + size)
    blocks = list(SMALL.blocks(start, stop, most))
    assert [block.start for block in blocks] == [start, *(block.stop for block in blocks[:-1])][
        : len(blocks)
    ]
    tokens = (
        np.concatenate([block.batch.targets.numpy() for block in blocks]) if blocks else np.zeros(0)
    )
    np.testing.assert_array_equal(tokens, SMALL.ids[start:stop])
    assert [w for block in blocks for w in block.windows] == SMALL.windows(start, stop)
    for block in blocks:
        for window, row in zip(block.windows, block.batch.inputs, strict=True):
            own = np.concatenate(([EOS], SMALL.ids[window.start : window.stop - 1]))
            np.testing.assert_array_equal(row[: len(own)], own)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60),
    st.integers(40, 200),
)
def test_batches_hold_every_pair_once_and_no_more_tokens_than_asked(
    sizes: list[tuple[int, int]], most: int
) -> None:
    lengths, sources = (np.array(side) for side in zip(*sizes, strict=True))
    longest = np.maximum(lengths, sources)
    order = by_length(lengths, longest, seed=3)
    batches = [order[first:stop] for first, stop in token_batches(longest[order], most)]
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert all(len(batch) * longest[batch].max() <= most for batch in batches)
    assert (np.diff(lengths[order]) >= 0).all()


def test_alike_pairs_are_drawn_from_the_seed() -> None:
    orders = [by_length(np.full(50, 4), np.full(50, 4), seed).tolist() for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("place", [0, 10])
def test_a_token_at_either_end_is_read_with_its_own_sentence(place: int) -> None:
    (block,) = SMALL.blocks(place, place + 1)
    assert block.batch.targets.tolist() == [SMALL.ids[place]] and len(block.windows) == 1
