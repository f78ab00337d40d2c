import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.search.top_k import runs


@given(st.lists(st.tuples(st.integers(-5, 50), st.integers(-2, 4)), max_size=8), st.integers(0, 2))
def test_runs_are_ranges_end_to_end(given: list[tuple[int, int]], step: int) -> None:
    starts, lengths = (np.array([one[i] for one in given], np.int64) for i in (0, 1))
    want = [start + step * i for start, length in given for i in range(length)]
    assert runs(starts, lengths, step).tolist() == want


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_without_steps_each_is_repeated(dtype: type) -> None:
    assert runs(np.array([7, 3], dtype), np.array([2, 3], dtype), step=0).tolist() == [7, 7, 3, 3, 3]
