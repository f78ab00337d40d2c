"""Chains of segments, and the documents of each."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.text.bm25 import term_counts
from stages.text.packing import (
    DocumentsApart,
    chain,
    document_spans,
    overlap,
    same_document,
    sharing,
)
from tests.oracles.bm25 import algorithm_1


@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 10**6))
def test_the_chain_is_that_of_algorithm_1(segments: int, k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    matches = random.integers(-1, segments, (segments, k))
    permutation = random.permutation(segments)
    chained = chain(matches, permutation)
    legal = [[int(m) for m in row if m >= 0] for row in matches]
    order, linked = algorithm_1(legal, permutation.tolist())
    assert chained.order.tolist() == order
    assert (chained.rank >= 0).tolist() == linked
    for place in np.flatnonzero(chained.rank >= 0):
        assert matches[order[place], chained.rank[place]] == order[place + 1]


@given(st.integers(2, 14), st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_segments_of_a_document_are_kept_apart_as_far_as_there_are_others(
    segments: int, k: int, reach: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    matches = random.integers(-1, segments, (segments, k))
    permutation = random.permutation(segments)
    spans = np.sort(random.integers(0, 5, (segments, 2)), axis=1)
    chained = chain(matches, permutation, DocumentsApart(spans, reach))

    def shares(a: int, b: int) -> bool:
        return bool(spans[a, 0] <= spans[b, 1] and spans[b, 0] <= spans[a, 1])

    order, linked = [int(permutation[0])], []
    while len(order) < segments:
        free = [segment for segment in permutation.tolist() if segment not in order]
        apart = [
            segment for segment in free if not any(shares(segment, near) for near in order[-reach:])
        ]
        found = [int(match) for match in matches[order[-1]] if match in apart]
        linked.append(bool(found))
        order.append((found or apart or free)[0])
    assert chained.order.tolist() == order
    assert (chained.rank >= 0).tolist() == linked


def test_a_document_that_dominates_is_passed_over_at_once() -> None:
    """The work is in proportion to the segments, where it was to their square: what is asked of
    them is counted.
    """

    class Asked(DocumentsApart):
        times = 0

        def allows(self, segment: int) -> bool:
            self.times += 1
            return super().allows(segment)

    segments, others = 20_000, 1_000
    random = np.random.default_rng(0)
    document = np.concatenate((np.zeros(segments - others, np.int64), 1 + np.arange(others)))
    apart = Asked(np.stack((document, document), 1), 3)
    chained = chain(np.full((segments, 2), -1), random.permutation(segments), apart)
    assert sorted(chained.order.tolist()) == list(range(segments))
    assert apart.times < 6 * segments
    near = np.flatnonzero(document[chained.order] == 0)[: others // 4]
    assert np.diff(near).min() == 4  # as far apart as asked while there are others


def test_without_matches_the_order_is_the_permutation() -> None:
    permutation = np.array([2, 0, 3, 1])
    chained = chain(np.full((4, 2), -1), permutation)
    assert chained.order.tolist() == permutation.tolist()
    assert (chained.rank == -1).all()


def test_overlap_is_the_mean_share_of_distinct_terms_found_in_the_next_segment() -> None:
    counts = term_counts(np.array([0, 0, 1, 1, 2, 3, 0, 4, 1, 0, 2, 5]), np.arange(0, 13, 4), 6)
    assert overlap(counts, np.array([0, 1, 2])) == (1 / 2 + 2 / 4) / 2
    assert overlap(counts, np.array([1, 0])) == 1 / 4


def test_overlap_of_many_pairs_is_that_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.text.packing.PAIRS", 5)
    ids = np.random.default_rng(0).integers(0, 20, 23 * 6)
    held = [set(segment) for segment in ids.reshape(-1, 6).tolist()]
    order = np.random.default_rng(1).permutation(23)
    wanted = [len(held[a] & held[b]) / len(held[a]) for a, b in pairwise(order)]
    assert (
        abs(overlap(term_counts(ids, np.arange(0, len(ids) + 1, 6), 20), order) - np.mean(wanted))
        < 1e-12
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 99))
def test_as_a_loop_over_tokens_says(lengths: list[int], length: int, seed: int) -> None:
    offsets = np.cumsum([0, *lengths])
    document = np.repeat(np.arange(len(lengths)), lengths)
    segments = len(document) // length
    held = [
        set(document[start : start + length].tolist())
        for start in range(0, segments * length, length)
    ]
    spans = document_spans(offsets, np.arange(segments + 1) * length)
    assert spans.tolist() == [[min(documents), max(documents)] for documents in held]
    for own, (start, stop) in enumerate(sharing(spans)):
        assert [other for other in range(segments) if held[other] & held[own]] == list(
            range(start, stop)
        )
    if segments > 1:
        order = np.random.default_rng(seed).permutation(segments)
        steps = [bool(held[a] & held[b]) for a, b in pairwise(order)]
        assert same_document(spans, order) == pytest.approx(np.mean(steps))
