import numpy as np
import pytest

from stages.search.config import excluding_fewer, forbidden_rows

OFFSETS = np.array([0, 3, 3, 7])


@pytest.mark.parametrize(
    ("exclude", "start", "stop", "rows"),
    [
        ("self", 2, 5, [[2, 3], [3, 4], [4, 5]]),
        ("window:2", 1, 3, [[0, 4], [0, 5]]),
        ("document", 1, 5, [[0, 3], [0, 3], [3, 7], [3, 7]]),
    ],
)
def test_forbidden_rows_are_those_of_the_contract(exclude: str, start: int, stop: int, rows: list[list[int]]) -> None:
    np.testing.assert_array_equal(forbidden_rows(exclude, start, stop, OFFSETS), rows)


def test_nothing_is_forbidden_where_nothing_is_excluded() -> None:
    assert forbidden_rows("none", 2, 5, OFFSETS) is None


def test_documents_are_mended_by_cutting_the_text_too() -> None:
    assert "memlm tokenize --documents" in excluding_fewer("document")
    assert "tokenize" not in excluding_fewer("window:9")
