"""Which segments batches read, against the whole of each epoch."""

import numpy as np
import pytest

from stages.examples.cutting import Cutting
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.methods.method import BatchLayout
from stages.training.batches import ExampleOrder
from stages.training.config import TrainConfig

EIGHT = Cutting("windows", 8, 8)
"""Segments of eight tokens."""


def order(streams: bool) -> ExampleOrder:
    """Batches of four, in epochs of five; one segment is left over."""
    method = METHODS.load("lm")(TrainConfig().method_settings)
    split = Streams(np.arange(8 * 21), 0, EIGHT, np.array([0, 40, 8 * 21]))
    return ExampleOrder(split, method, BatchLayout(streams), 4, 7)


@pytest.mark.parametrize("streams", [False, True])
def test_an_epoch_reads_no_segment_twice_and_is_the_same_whenever_it_is_asked_for(
    streams: bool,
) -> None:
    asked, epochs = order(streams), []
    for epoch in range(2):
        batches = [asked.of_batch(number) for number in range(5 * epoch, 5 * epoch + 5)]
        assert [asked.begins_epoch(number) for number in range(5 * epoch, 5 * epoch + 5)] == [
            True
        ] + [False] * 4
        assert len(set(np.concatenate(batches).tolist())) == 20
        epochs.append(np.stack(batches))
    assert (epochs[0] == epochs[1]).all() == streams
    np.testing.assert_array_equal(asked.of_batch(2), epochs[0][2])
    np.testing.assert_array_equal(order(streams).of_batch(7), epochs[1][2])


def test_in_streams_a_row_goes_on_where_it_ended() -> None:
    asked = order(streams=True)
    rows = np.stack([asked.of_batch(number) for number in range(5)])
    assert (np.diff(rows, axis=0) == 1).all()


def test_ranks_share_a_batch() -> None:
    asked = order(streams=False)
    shares = [asked.share(3, rank, 2) for rank in range(2)]
    assert [len(share) for share in shares] == [2, 2]
    np.testing.assert_array_equal(np.concatenate(shares), asked.of_batch(3))


def test_documents_of_several_batches_are_counted_once() -> None:
    """The first five segments are of one document, the others of another."""
    asked = order(streams=True)
    assert asked.of_batch(0).tolist() == [0, 5, 10, 15]
    assert asked.documents_in([0]) == asked.documents_in([0, 1]) == 2


@pytest.mark.parametrize(
    ("name", "settings", "accumulate", "found"),
    [
        ("trime-long", {"consecutive": 16}, 1, 3),
        ("trime-long", {"consecutive": 8}, 1, 4),
        ("trime-long", {"consecutive": 4}, 1, 6),
        ("trime-long", {"consecutive": 16}, 2, 6),
        ("trime-long", {"consecutive": 8}, 2, None),
        ("trime-long", {"consecutive": 2}, 1, None),
        ("trime-ext", {"groups": 1}, 1, 3),
        ("trime-ext", {"groups": 8}, 1, None),
        ("trime", {}, 1, None),
    ],
)
def test_updates_of_few_documents_are_told_with_the_setting_that_helps(
    name, settings, accumulate, found
) -> None:
    """Documents of eight segments; the packing has them one after the other."""
    split = Streams(
        np.arange(8 * 512), 0, EIGHT, np.arange(0, 8 * 513, 64) + np.r_[0, np.full(63, 4), 0]
    )
    method = METHODS.load(name)(METHODS.settings(name)(**settings), {"batches": np.arange(512)})
    order = ExampleOrder(split, method, BatchLayout(), 16, 0)
    warning = order.few_documents(accumulate)
    if found is None:
        assert warning is None
    else:
        assert f"documents an update: {found} on average" in warning
        assert f"memory.{next(iter(settings))} says" in warning


def test_of_a_text_of_one_document_nothing_is_said() -> None:
    method = METHODS.load("trime-long")(METHODS.settings("trime-long")(consecutive=16))
    assert (
        ExampleOrder(Streams(np.arange(800), 0, EIGHT), method, BatchLayout(), 16, 0).few_documents(
            1
        )
        is None
    )
