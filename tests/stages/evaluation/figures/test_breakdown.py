"""Breakdowns of a split, among them paragraphs that were read before."""

from types import SimpleNamespace

import numpy as np
import pytest
import zarr

from stages.evaluation.figures.breakdown import Accuracy, find_accuracy, repeated_tokens
from stages.retrieval.rows import MemoryRow
from stages.retrieval.sources.source import Needs


def row(*neighbors: int, searched: float = 1.0) -> MemoryRow:
    """Readings of so many neighbours each, or of the recent past alone where there are none."""
    reading = SimpleNamespace(searched=searched)
    return MemoryRow(tuple(SimpleNamespace(needs=Needs(neighbors=n), reading=reading) for n in neighbors))


@pytest.mark.parametrize(
    ("k", "at"),
    [
        (1, (1,)),
        (6, (1, 6)),
        (64, (1, 8, 64)),
        (1000, (1, 8, 64, 1000)),
        (1024, (1, 8, 64, 1024)),
        (2048, (1, 8, 64, 1024, 2048)),
    ],
)
def test_accuracy_is_told_at_the_numbers_of_the_paper_and_at_all_that_are_read(k: int, at: tuple[int, ...]) -> None:
    assert find_accuracy([row(k)]) == Accuracy(0, at)


def test_it_is_that_of_the_first_row_whose_first_reading_has_neighbours() -> None:
    assert find_accuracy([row(0, 8), row(0), row(8)]) == Accuracy(2, (1, 8))
    assert find_accuracy([row(8, 0), row(4)]) == Accuracy(0, (1, 8))


def test_without_neighbours_there_is_none() -> None:
    assert find_accuracy([row(0)]).at == find_accuracy([]).at == ()


def test_where_searches_are_left_out_there_is_none() -> None:
    assert find_accuracy([row(8, searched=0.5)]).at == ()


class Tokens:
    def __init__(self, folder, **splits):
        self.group = zarr.open_group(folder, mode="w")
        for split, (ends, hashes) in splits.items():
            self.group.create_array(f"{split}/paragraph_ends", data=np.array(ends, np.int64))
            self.group.create_array(f"{split}/paragraph_hashes", data=np.array(hashes, np.uint64))

    def zarr(self, name):
        assert name == "tokens.zarr"
        return self.group


def test_tokens_of_paragraphs_that_train_has_are_marked(tmp_path):
    big = 2**64 - 1
    tokens = Tokens(tmp_path, test=([3, 4, 6], [big, 8, 7]))
    repeated = repeated_tokens(tokens, "test", np.array([7, big], np.uint64))
    assert repeated.tolist() == [True, True, True, False, True, True]
