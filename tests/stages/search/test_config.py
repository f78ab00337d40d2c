from typing import Any

import numpy as np
import pytest

from stages.errors import UsageError
from stages.search.config import (
    NeighborsConfig,
    exactness,
    excluding_fewer,
    forbidden_rows,
    lists_to_read,
)

LISTS = {"index": "ivf-flat", "lists": 16, "probe": 8}
FLAT = {"index": "flat", "lists": None, "probe": None}
FACTORY = {"index": "IVF16,Flat", "lists": None, "probe": 8}
MEASURED = {
    "recall_by_probe": {
        "1": {"1": 0.7, "8": 0.4, "64": 0.2},
        "2": {"1": 0.8, "8": 0.6, "64": 0.4},
        "4": {"1": 0.9, "8": 0.8, "64": 0.6},
        "8": {"1": 0.9, "8": 0.9, "64": 0.8},
    }
}


@pytest.mark.parametrize(
    ("settings", "lists"),
    [
        ({"k": 1}, 4),
        ({"k": 1, "recall": 0.85}, 2),
        ({"k": 4}, 8),
        ({"k": 4, "recall": 0.8}, 4),
        ({"k": 1000, "recall": 0.7}, 4),
        ({"k": 1, "recall": 0.1}, 1),
        ({"probe": 16}, 16),
    ],
)
def test_as_few_lists_are_read_as_the_recall_of_k_or_the_next_larger_allows(
    settings: dict[str, Any], lists: int
) -> None:
    assert lists_to_read(NeighborsConfig(**settings), LISTS, MEASURED) == lists


def test_where_nothing_was_measured_the_index_decides() -> None:
    assert lists_to_read(NeighborsConfig(), LISTS, {}) == 8
    assert lists_to_read(NeighborsConfig(), FLAT, {}) is None
    assert lists_to_read(NeighborsConfig(probe=3), FACTORY, {}) == 3


@pytest.mark.parametrize(
    ("probe", "index", "message"),
    [
        (17, LISTS, "probe 17 is more than the 16 lists; give at most 16"),
        (1, FLAT, "'flat' has no lists to probe: leave probe out"),
    ],
)
def test_lists_that_are_not_there_cannot_be_read(
    probe: int, index: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        lists_to_read(NeighborsConfig(probe=probe), index, MEASURED)


@pytest.mark.parametrize(("k", "candidates"), [(4, 64), (100, 400), (1000, 2024)])
def test_candidates_are_a_multiple_of_the_neighbours_within_bounds(k: int, candidates: int) -> None:
    assert exactness(NeighborsConfig(k=k, exact=True), lossless=False) == {"candidates": candidates}


def test_whole_keys_are_exact_without_candidates() -> None:
    assert exactness(NeighborsConfig(exact=True), lossless=True) == {
        "exact": True,
        "candidates": None,
    }
    assert exactness(NeighborsConfig(), lossless=False) == {"exact": False, "candidates": None}
    assert exactness(NeighborsConfig(exact=True, candidates=9), lossless=False) == {}


@pytest.mark.parametrize(
    ("settings", "lossless", "message"),
    [
        ({"exact": True, "candidates": 9}, True, "whole keys"),
        ({"candidates": 9}, False, "not asked for"),
        ({"exact": True, "k": 10, "candidates": 9}, False, "9 candidates are fewer than k = 10"),
    ],
)
def test_candidates_that_mean_nothing_are_refused(
    settings: dict[str, Any], lossless: bool, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        exactness(NeighborsConfig(**settings), lossless)


OFFSETS = np.array([0, 3, 3, 7])


@pytest.mark.parametrize(
    ("exclude", "start", "stop", "rows"),
    [
        ("self", 2, 5, [[2, 3], [3, 4], [4, 5]]),
        ("window:2", 1, 3, [[0, 4], [0, 5]]),
        ("document", 1, 5, [[0, 3], [0, 3], [3, 7], [3, 7]]),
    ],
)
def test_forbidden_rows_are_those_of_the_contract(
    exclude: str, start: int, stop: int, rows: list[list[int]]
) -> None:
    np.testing.assert_array_equal(forbidden_rows(exclude, start, stop, OFFSETS), rows)


def test_nothing_is_forbidden_where_nothing_is_excluded() -> None:
    assert forbidden_rows("none", 2, 5, OFFSETS) is None


def test_documents_are_mended_by_cutting_the_text_too() -> None:
    assert "memlm tokenize --documents" in excluding_fewer("document")
    assert "tokenize" not in excluding_fewer("window:9")
