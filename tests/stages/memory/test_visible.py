import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.visible import Visible, earlier, mirrored_blocks, others, visible_blocks
from tests.oracles.in_batch import reads


def table(visible, keys):
    return [[reads(visible, i, j) for j in range(keys)] for i in range(len(visible))]


@st.composite
def visibles(draw, most=12):
    """Any bounds, also those of nothing and holes beside what is read; and the number of keys."""
    keys = draw(st.integers(1, most))
    n = draw(st.integers(1, most))
    place = st.integers(0, keys)
    start, stop, hole = (torch.tensor(draw(st.lists(place, min_size=n, max_size=n))) for _ in range(3))
    length = torch.tensor(draw(st.lists(place, min_size=n, max_size=n)))
    return Visible(start, stop, hole, (hole + length).clamp(max=keys)), keys


@given(visibles(), st.data())
@settings(deadline=None)
def test_a_mask_is_what_each_query_reads(case, data):
    visible, keys = case
    begin = data.draw(st.integers(0, keys))
    end = data.draw(st.integers(begin, keys))
    mask = visible.mask(slice(begin, end))
    assert mask.eq(0).tolist() == [row[begin:end] for row in table(visible, keys)]
    assert (mask.eq(0) | mask.isneginf()).all()


@given(visibles(), st.integers(1, 5), st.integers(1, 5))
@settings(deadline=None)
def test_blocks_hold_every_visible_cell_once(case, rows, columns):
    visible, keys = case
    want = table(visible, keys)
    left = {(i, j) for i, row in enumerate(want) for j, seen in enumerate(row) if seen}
    for block in visible_blocks(visible, keys, rows, columns):
        cells = {
            (i, j) for i in range(block.rows.start, block.rows.stop) for j in range(block.keys.start, block.keys.stop)
        }
        assert block.rows.stop - block.rows.start <= rows
        assert block.keys.stop - block.keys.start <= columns
        seen = {(i, j) for i, j in cells if want[i][j]}
        assert seen, "a block of nothing"
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
                (i, j) for i in range(side.rows.start, side.rows.stop) for j in range(side.keys.start, side.keys.stop)
            }
            seen = {(i, j) for i, j in cells if want[i][j]}
            assert seen, "a block of nothing"
            assert seen <= left, "a cell twice"
            assert side.whole == (seen == cells)
            left -= seen
        assert block.mirror is None or (block.mirror.rows, block.mirror.keys) == (block.keys, block.rows)
    assert not left


def test_mirrored_blocks_take_little_more_than_half_the_products():
    own = torch.arange(64)
    visible = others(own // 16 * 16, own // 16 * 16 + 16, own, 64, local=False)
    assert sum(block.cells for block in mirrored_blocks(visible, 8)) == sum(range(1, 9)) * 64 - 4 * 3 * 64


def test_local_memory_is_the_earlier_part_of_the_segment():
    starts = torch.tensor([0, 0, 0, 3, 3])
    assert table(earlier(starts, torch.arange(5)), 5) == [
        [False, False, False, False, False],
        [True, False, False, False, False],
        [True, True, False, False, False],
        [False, False, False, False, False],
        [False, False, False, True, False],
    ]


@pytest.mark.parametrize("local", [True, False])
def test_others_are_all_but_the_own_segment(local):
    starts, stops = torch.tensor([0, 0, 2, 2, 2, 5]), torch.tensor([2, 2, 5, 5, 5, 6])
    own = torch.arange(6)
    seen = table(others(starts, stops, own, 6, local), 6)
    for i in range(6):
        for j in range(6):
            apart = not starts[i] <= j < stops[i]
            assert seen[i][j] == (apart or (local and starts[i] <= j < i))


def test_keys_in_front_of_the_batch_are_read_by_all():
    starts, stops, own = torch.tensor([4, 4]), torch.tensor([6, 6]), torch.tensor([4, 5])
    assert table(others(starts, stops, own, 6, local=True), 6) == [
        [True, True, True, True, False, False],
        [True, True, True, True, True, False],
    ]


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


def test_places_beyond_the_digits_of_float32_are_told_apart():
    far = 1 << 30
    visible = earlier(torch.tensor([far]), torch.tensor([far + 2]))
    assert visible.mask(slice(far - 1, far + 4)).eq(0).tolist() == [[False, True, True, False, False]]


def test_whole_blocks_need_no_mask():
    own = torch.arange(64)
    visible = others(own // 16 * 16, own // 16 * 16 + 16, own, 64, local=False)
    assert all(block.whole for block in visible_blocks(visible, 64, 16, 1024))
