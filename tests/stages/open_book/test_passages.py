"""Cutting of a text into passages."""

import numpy as np
import pytest

from stages.open_book.passages import cut_passages
from tests.oracles.passages import slow_passages


@pytest.mark.parametrize("longest", [1, 3, 5, 8, 200])
def test_passages_are_those_of_a_walk_over_paragraphs(longest: int) -> None:
    random = np.random.default_rng(longest)
    for _ in range(20):
        edges = random.choice(np.arange(1, 90), 25, replace=False)
        paragraphs = np.append(np.sort(edges), 90)
        documents = np.append(0, np.append(np.sort(random.choice(np.arange(1, 90), 6)), 90))
        passages = cut_passages(documents, paragraphs, longest)
        ranges = list(zip(passages.bounds[:-1], passages.bounds[1:], strict=True))
        assert ranges == slow_passages(documents.tolist(), paragraphs.tolist(), longest)
        for number, (start, stop) in enumerate(ranges):
            document = int(passages.documents(np.array(number)))
            assert documents[document] <= start < stop <= documents[document + 1]


def test_passages_of_rows_and_of_ranges_hold_them() -> None:
    passages = cut_passages(np.array([0, 7, 12]), np.array([2, 4, 7, 12]), 4)
    rows = np.array([-1, 0, 3, 4, 11, 12])
    assert passages.of_rows(rows).tolist() == [-1, 0, 0, 1, 3, -1]
    for start in range(12):
        for stop in range(start + 1, 13):
            ((first, last),) = passages.overlapping(np.array([[start, stop]]))
            shared = np.unique(passages.of_rows(np.arange(start, stop)))
            assert shared.tolist() == list(range(first, last))
