"""Cutting, merging and forgetting against sorting all contexts at once."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.suffixes.matches import SortedContexts
from stages.suffixes.shards import (
    DocumentRanges,
    borders,
    group_by_shard,
    keep_order,
    match_documents,
    merge_orders,
    new_ranges,
    positions_of_shard,
    rank_contexts,
)
from stages.suffixes.text import Order, Text, sort_contexts

DOCUMENTS = st.lists(st.lists(st.integers(0, 3), max_size=12).map(tuple), min_size=1, max_size=9)
Corpus = tuple[np.ndarray, np.ndarray]


def corpus(documents: list[tuple[int, ...]]) -> Corpus:
    lengths = [len(one) for one in documents]
    return np.array([id for one in documents for id in one], np.uint16), np.append(
        0, np.cumsum(lengths)
    )


def sorted_apart(text: Text, held: DocumentRanges, shards: int) -> list[Order]:
    """Contexts cut in pieces of seven, and sorted by shard."""
    if not len(held):
        return []
    bounds = borders(text, held, shards)
    parts = [
        group_by_shard(bounds, held.positions(np.arange(n, min(n + 7, len(held)))))
        for n in range(0, len(held), 7)
    ]
    return [sort_contexts(text, positions_of_shard(parts, shard)) for shard in range(shards)]


@settings(max_examples=150, deadline=None)
@given(
    DOCUMENTS, DOCUMENTS, st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 9)
)
def test_merging_what_stays_and_what_is_new_is_sorting_all(
    first: list[tuple[int, ...]], new: list[tuple[int, ...]], random: object, shards: int, step: int
) -> None:
    second = [one for one in first if random.random() < 0.6] + new
    if random.random() < 0.3:
        random.shuffle(second)
    before, now = corpus(first), corpus(second)
    old, text = (Text.of(*one, 4) for one in (before, now))
    order, shared = sort_contexts(old, np.arange(len(old)))
    blocks = [(order[n : n + step], shared[n : n + step]) for n in range(0, len(order), step)]
    stay = match_documents(before, now)
    left = [*keep_order(blocks, stay, before[1], now[1])] or [
        (np.zeros(0, int), np.zeros(0, np.uint8))
    ]
    stays, held = Order(*map(np.concatenate, zip(*left, strict=True))), new_ranges(now[1], stay.now)
    assert len(stays.positions) + len(held) == len(text)

    parts = [
        rank_contexts(text, part, SortedContexts(text, *stays))
        for part in sorted_apart(text, held, shards)
    ]
    rows = [
        merge_orders(text, n, min(n + step, len(text)), parts, stays)
        for n in range(0, len(text), step)
    ]
    want = sort_contexts(text, np.arange(len(text)))
    for at, whole in enumerate(want):
        assert [value for part in rows for value in part[at]] == whole.tolist()


def test_what_stays_are_all_documents_that_kept_their_order() -> None:
    one, two, three, four = ((n,) * 3 for n in range(4))
    stay = match_documents(
        corpus([one, two, two, three, four]), corpus([four, two, (), three, one])
    )
    assert (stay.before.tolist(), stay.now.tolist()) == ([1, 3], [1, 3])


def test_shards_are_about_as_large_even_of_one_token_that_is_repeated() -> None:
    for ids in (
        np.zeros(4000, np.uint16),
        np.random.default_rng(0).integers(0, 50, 4000).astype(np.uint16),
    ):
        text = Text.of(ids, np.array([0, 4000]), 50)
        bounds = borders(text, DocumentRanges(np.array([0]), np.array([4000])), 8)
        _, counts = group_by_shard(bounds, np.arange(4000))
        assert counts.sum() == 4000 and counts.max() < 1.3 * 500
