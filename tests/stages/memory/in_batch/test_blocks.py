import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.in_batch.blocks import mirrored_blocks, visible_blocks
from stages.memory.in_batch.visible import earlier, others
from tests.builders.visible import table, visibles


@given(visibles(), st.integers(1, 5), st.integers(1, 5))
@settings(deadline=None)
def test_blocks_hold_every_visible_cell_once(case, rows, columns):
    visible, keys = case
    want = table(visible, keys)
    left = {(i, j) for i, row in enumerate(want) for j, seen in enumerate(row) if seen}
    for block in visible_blocks(visible, keys, rows, columns):
        cells = {
            (i, j)
            for i in range(block.rows.start, block.rows.stop)
            for j in range(block.keys.start, block.keys.stop)
        }
        assert block.rows.stop - block.rows.start <= rows
        assert block.keys.stop - block.keys.start <= columns
        seen = {(i, j) for i, j in cells if want[i][j]}
        assert seen  # a block of nothing
        assert seen <= left, "a cell twice"
        assert block.whole == (seen == cells)
        left -= seen
    assert not left


@given(visibles(), st.integers(1, 5))
@settings(deadline=None)
def test_mirrored_blocks_hold_every_visible_cell_once(case, at_once):
    visible, _ = case
    size = len(visible)
    want = table(visible, size)
    left = {(i, j) for i, row in enumerate(want) for j, seen in enumerate(row) if seen}
    for block in mirrored_blocks(visible, at_once):
        for side in filter(None, (block, block.mirror)):
            cells = {
                (i, j)
                for i in range(side.rows.start, side.rows.stop)
                for j in range(side.keys.start, side.keys.stop)
            }
            seen = {(i, j) for i, j in cells if want[i][j]}
            assert seen  # a block of nothing
            assert seen <= left, "a cell twice"
            assert side.whole == (seen == cells)
            left -= seen
        assert block.mirror is None or (block.mirror.rows, block.mirror.keys) == (
            block.keys,
            block.rows,
        )
    assert not left


def test_mirrored_blocks_take_little_more_than_half_the_products():
    own = torch.arange(64)
    visible = others(own // 16 * 16, own // 16 * 16 + 16, own, 64, local=False)
    assert (
        sum(block.cells for block in mirrored_blocks(visible, 8))
        == sum(range(1, 9)) * 64 - 4 * 3 * 64
    )


def test_local_memory_costs_little_more_than_its_cells():
    length, segments = 64, 8
    own = torch.arange(length * segments)
    blocks = visible_blocks(earlier(own // length * length, own), len(own), 16, 32)
    cells = sum((b.rows.stop - b.rows.start) * (b.keys.stop - b.keys.start) for b in blocks)
    assert cells <= 1.3 * segments * length * length / 2


@pytest.mark.parametrize("length", [20, 64, 100])
def test_rows_of_two_segments_do_not_share_a_block_unless_it_would_be_small(length):
    own = torch.arange(length * 5)
    for block in visible_blocks(earlier(own // length * length, own), len(own), 32, 64):
        within = own[block.rows] // length
        assert within.min() == within.max() or length < 32


def test_whole_blocks_need_no_mask():
    own = torch.arange(64)
    visible = others(own // 16 * 16, own // 16 * 16 + 16, own, 64, local=False)
    assert all(block.whole for block in visible_blocks(visible, 64, 16, 1024))
