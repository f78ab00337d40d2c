"""The largest values of a stream."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.comparison.top_tokens import TopTokens


@given(st.lists(st.integers(-3, 6), max_size=60), st.integers(0, 5), st.integers(1, 60))
def test_the_largest_above_zero_are_kept_the_first_of_equals(values, most, block):
    kept = TopTokens(most)
    for start in range(0, len(values), block):
        kept.add(start, np.array(values[start : start + block], float))
    above = [row for row, value in enumerate(values) if value > 0]
    assert kept.rows.tolist() == sorted(above, key=lambda row: (-values[row], row))[:most]
