"""Copies found by hashes, against windows that are compared one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.forgetting import windows
from stages.forgetting.windows import Windows, joined_ranges, shared_ranges, window_hashes
from tests.oracles.windows import covered


def texts_with_copies(seed: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray, list]:
    """A text of 120 tokens in documents, and two texts of which it has parts."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, vocabulary, 120)
    sought = [random.integers(0, vocabulary, length) for length in (40, 9)]
    for text in sought:
        length = int(random.integers(1, len(text) + 1))
        place = int(random.integers(0, 120 - length + 1))
        ids[place : place + length] = text[:length]
    offsets = np.unique(np.r_[0, random.integers(0, 120, 4), 120])
    return ids, offsets, sought


def marked(ranges: np.ndarray, length: int) -> list[bool]:
    inside = np.zeros(length, bool)
    for start, stop in ranges:
        inside[start:stop] = True
    return inside.tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(0), st.sampled_from([2, 5, 60_000]), st.integers(1, 12))
def test_ranges_cover_the_tokens_of_equal_windows(seed: int, vocabulary: int, length: int) -> None:
    ids, offsets, sought = texts_with_copies(seed, vocabulary)
    expected = covered(ids.tolist(), offsets.tolist(), [one.tolist() for one in sought], length)
    ranges = shared_ranges(ids.astype(np.uint16), offsets, Windows.of(sought, length))
    assert marked(ranges, len(ids)) == expected
    documents = np.searchsorted(offsets, ranges - [0, 1], side="right")
    assert (documents[:, 0] == documents[:, 1]).all()


@pytest.mark.parametrize("at_once", [1, 7, 64])
def test_windows_across_the_borders_of_blocks_are_found(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(windows, "AT_ONCE", at_once)
    text = np.arange(100, 200)
    ids = np.r_[np.zeros(13, int), text[20:80], np.zeros(9, int)]
    found = shared_ranges(ids, np.array([0, len(ids)]), Windows.of([text], 50))
    assert found.tolist() == [[13, 73]]


def test_a_copy_across_two_documents_is_none_and_no_window_crosses_two_texts() -> None:
    text = np.arange(60)
    sought = Windows.of([text[:30], text[30:]], 20)
    assert not len(shared_ranges(text[20:40], np.array([0, 20]), sought))
    assert shared_ranges(text, np.array([0, 15, 60]), Windows.of([text], 20)).tolist() == [[15, 60]]


def test_hashes_are_the_same_wherever_a_window_stands_and_differ_elsewhere() -> None:
    random = np.random.default_rng(0)
    ids = random.integers(0, 3, 5000)
    hashes = window_hashes(ids, 12).tolist()
    windows_ = [tuple(ids[n : n + 12].tolist()) for n in range(len(hashes))]
    assert len(set(windows_)) < len(windows_)
    assert len(set(zip(windows_, hashes, strict=True))) == len(set(windows_)) == len(set(hashes))


def test_nothing_is_found_of_what_is_short_or_of_one_token() -> None:
    zeros = np.zeros(80, int)
    assert not len(Windows.of([zeros, np.arange(10)], 50).hashes)
    assert not len(shared_ranges(zeros, np.array([0, 80]), Windows.of([zeros], 50)))
    assert not len(joined_ranges([], np.array([0])))
    assert not len(shared_ranges(zeros[:0], np.array([0, 0]), Windows.of([np.arange(90)], 50)))
