"""Which passages a report chooses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.inspection.selection import heaviest


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 8))
def test_windows_are_the_heaviest_that_are_left_each_time(values: list[int], most: int, length: int) -> None:
    length = min(length, len(values))
    found = heaviest(np.array(values, float), most, length)
    free = list(range(len(values) - length + 1))
    for start, total in found:
        sums = [sum(values[one : one + length]) for one in free]
        assert total == pytest.approx(max(sums)) and total > 0
        assert start in free and sum(values[start : start + length]) == total
        free = [one for one in free if abs(one - start) >= length]
    left = max((sum(values[one : one + length]) for one in free), default=0)
    assert len(found) == most or left <= 0
