"""Tests of stages.retrieval.neighbors."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as any_array

from stages.artifacts.reading import RowsByName
from stages.retrieval.neighbors import NeighborTokens, neighbor_tokens

VALUES = np.array([7, 0, 65_536, 3], np.int32)


@given(any_array(np.int64, st.tuples(st.integers(0, 5), st.integers(0, 4)), elements=st.integers(-1, 3)))
def test_every_neighbour_becomes_the_token_of_its_row(ids: np.ndarray) -> None:
    tokens = neighbor_tokens(ids, VALUES)

    assert tokens.dtype == np.int64
    assert tokens.tolist() == [[-1 if i < 0 else int(VALUES[i]) for i in row] for row in ids.tolist()]


def test_a_mapped_file_serves_as_values(tmp_path) -> None:
    VALUES.tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", np.int32, mode="r")

    assert neighbor_tokens(np.array([[2, -1], [3, 0]]), mapped).tolist() == [[65_536, -1], [3, 7]]


def test_the_best_neighbours_of_a_range_are_read() -> None:
    arrays = RowsByName({"test/ids": np.array([[3, 0, 1], [2, -1, -1], [1, 1, 0], [0, 0, 0]])})

    tokens = NeighborTokens(arrays, VALUES, k=2)

    assert tokens.read("test", 1, 3).tolist() == [[65_536, -1], [0, 0]]
    assert tokens.read("test", 2, 2).shape == (0, 2)
