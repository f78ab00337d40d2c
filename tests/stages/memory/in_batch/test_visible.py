import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.in_batch.visible import earlier, others
from tests.builders.visible import table, visibles


@given(visibles(), st.data())
@settings(deadline=None)
def test_what_a_query_reads_is_not_hidden(case, data):
    visible, keys = case
    begin = data.draw(st.integers(0, keys))
    end = data.draw(st.integers(begin, keys))
    assert (~visible.hides(slice(begin, end))).tolist() == [
        row[begin:end] for row in table(visible, keys)
    ]


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


@given(visibles(), st.data())
@settings(deadline=None)
def test_within_a_range_of_keys_nothing_else_is_read(case, data):
    visible, keys = case
    bounds = st.lists(st.integers(0, keys), min_size=len(visible), max_size=len(visible))
    first, stop = (torch.tensor(data.draw(bounds)) for _ in range(2))
    seen = table(visible.within(first, stop), keys)
    for i, row in enumerate(table(visible, keys)):
        assert seen[i] == [first[i] <= j < stop[i] and read for j, read in enumerate(row)]


def test_local_memory_may_be_read_by_some_alone():
    starts, stops = torch.tensor([0, 0, 2, 2]), torch.tensor([2, 2, 4, 4])
    local = torch.tensor([True, True, False, False])
    assert table(others(starts, stops, torch.arange(4), 4, local), 4) == [
        [False, False, True, True],
        [True, False, True, True],
        [True, True, False, False],
        [True, True, False, False],
    ]


def test_keys_in_front_of_the_batch_are_read_by_all():
    starts, stops, own = torch.tensor([4, 4]), torch.tensor([6, 6]), torch.tensor([4, 5])
    assert table(others(starts, stops, own, 6, local=True), 6) == [
        [True, True, True, True, False, False],
        [True, True, True, True, True, False],
    ]


def test_places_beyond_int32_are_told_apart():
    far = 1 << 40
    visible = earlier(torch.tensor([far]), torch.tensor([far + 2]))
    assert visible.hides(slice(far - 1, far + 4)).tolist() == [[True, False, False, True, True]]
