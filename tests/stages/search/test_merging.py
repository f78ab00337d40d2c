"""Rows that are merged or left out, beside a loop over rows and neighbours."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.search.merging import merged_rows, random_rows


def slowly_merged(neighbors: list[list[int]], values: list[int]) -> list[int]:
    """Counts, one row and one neighbour at a time."""
    counts = [1] * len(values)
    for row, found in enumerate(neighbors):
        if counts[row] == 0:
            continue
        for other in found:
            if other >= 0 and other != row and values[other] == values[row] and counts[other] == 1:
                counts[other] = 0
                counts[row] += 1
    return counts


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31))
@settings(deadline=None)
def test_rows_are_merged_as_by_a_loop(rows: int, k: int, block: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = draw.integers(0, 3, rows)
    neighbors = np.array([np.append(draw.permutation(rows), [-1] * k)[:k] for _ in range(rows)])
    counts = merged_rows(
        ((start, neighbors[start : start + block]) for start in range(0, rows, block)), values
    )
    assert counts.tolist() == slowly_merged(neighbors.tolist(), values.tolist())
    assert counts.sum() == rows


def test_a_share_of_the_rows_is_drawn_and_at_least_one() -> None:
    assert random_rows(1000, 0.25, seed=1).sum() == 250
    assert (
        random_rows(3, 0.01, seed=1).tolist() != random_rows(3, 1.0, seed=1).tolist() == [1, 1, 1]
    )
    assert random_rows(3, 0.01, seed=1).sum() == 1
    assert (random_rows(1000, 0.5, seed=1) != random_rows(1000, 0.5, seed=2)).any()
