import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.entries import Entries, dense_log_sums, find_matches, target_log_sums
from stages.memory.readers.reader import Interpolate, Joint
from stages.memory.recent import Recent, recent_entries, recent_matches
from tests.oracles import neural_cache as oracle

VOCABULARY = 5
KINDS = ("dot", "scaled-dot", "l2")


def stream(length, width=3, seed=0, vocabulary=VOCABULARY):
    """Keys that are halves of whole numbers, so that float32 has every score exactly; and tokens."""
    made = torch.Generator().manual_seed(seed)
    keys = torch.randint(-4, 5, (length, width), generator=made) / 2
    return keys, torch.randint(0, vocabulary, (length,), generator=made, dtype=torch.int32)


def written_out(entries, row):
    """(score, value) of the entries of a position that are not missing."""
    pairs = zip(entries.scores[row].tolist(), entries.values[row].tolist(), strict=True)
    return [(score, value) for score, value in pairs if value >= 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [0, 1, 4, 9])
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_long_reads_the_last_positions_nearest_first(kind, before, size):
    keys, tokens = stream(10)
    first = torch.arange(before, 10).sub(size).clamp(min=0)
    at = Recent(keys, tokens, first, kind, size)
    entries = recent_entries(at)
    assert entries.scores.dtype == torch.float32
    assert entries.scores.shape == entries.values.shape
    for row, t in enumerate(range(before, 10)):
        read = oracle.positions_read(t, size=size)
        want = oracle.memory(keys.tolist(), tokens.tolist(), t, read, kind, 1.0)
        assert [v for _, v in written_out(entries, row)] == [v for _, v in want]
        assert [s for s, _ in written_out(entries, row)] == pytest.approx(
            [s for s, _ in want], abs=1e-5
        )
        missing = entries.values[row, len(want) :]
        assert (missing == -1).all()
        assert entries.scores[row, len(want) :].isneginf().all()


@st.composite
def unions(draw):
    """A stream cut in two, documents, windows, and the sizes of a union."""
    length = draw(st.integers(1, 14))
    before = draw(st.integers(0, length - 1))
    documents = sorted({0, *draw(st.lists(st.integers(0, length - 1), max_size=3))})
    windows = sorted({0, *draw(st.lists(st.integers(0, length - 1), max_size=3))})
    sizes = sorted(draw(st.sets(st.integers(1, 16), min_size=1, max_size=3)))
    return length, before, documents, windows, sizes, draw(st.integers(0, 9))


@given(unions(), st.sampled_from(KINDS), st.sampled_from([0.0, 0.3, 2.0]), st.booleans())
@settings(deadline=None)
def test_a_union_reads_each_position_once(case, kind, theta, by_document):
    length, before, documents, windows, sizes, seed = case
    keys, tokens = stream(length, seed=seed)
    starts = [
        max(d for d in documents if d <= t) if by_document else 0 for t in range(before, length)
    ]
    opened = [max(w for w in windows if w <= t) for t in range(before, length)]
    first = [
        max(start, t - sizes[-1]) for t, start in zip(range(before, length), starts, strict=True)
    ]
    at = Recent(
        keys, tokens, torch.tensor(first), kind, max(length, sizes[-1]), torch.tensor(opened)
    )
    matches = recent_matches(at)
    log_sums = target_log_sums(recent_entries(at), matches, [theta], sizes)
    for row, t in enumerate(range(before, length)):
        for c, size in enumerate(sizes):
            read = oracle.positions_read(
                t, size=size, document_start=starts[row], window_start=opened[row]
            )
            entries = oracle.memory(keys.tolist(), tokens.tolist(), t, read, kind, theta)
            want = oracle.cache(entries, VOCABULARY)
            assert log_sums.empty[0, c, row].item() == (want is None)
            got = log_sums.log_prob[0, c, row].exp().item()
            assert got == pytest.approx(want[tokens[t]] if want else 0.0, rel=1e-4, abs=1e-30)


@given(unions(), st.booleans())
@settings(deadline=None)
def test_hits_found_in_the_stream_are_those_found_in_the_cells(case, union):
    length, before, _, windows, sizes, seed = case
    keys, tokens = stream(length, seed=seed, vocabulary=2)
    opened = torch.tensor([max(w for w in windows if w <= t) for t in range(before, length)])
    first = torch.arange(before, length).sub(sizes[-1]).clamp(min=0)
    at = Recent(keys, tokens, first, "dot", sizes[-1], opened if union else None)
    want = find_matches(recent_entries(at), tokens[before:])
    for got, expected in zip(recent_matches(at), want, strict=True):
        assert got.tolist() == expected.tolist()


def test_local_reads_its_window_whatever_its_size():
    keys, tokens = stream(8)
    first = torch.tensor([4, 4, 6, 6])
    entries = recent_entries(Recent(keys, tokens, first, "dot", 4))
    assert [len(written_out(entries, row)) for row in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("reader", ["interpolate", "joint"])
@pytest.mark.parametrize("theta", [0.0, 0.7])
@pytest.mark.parametrize(
    ("length", "before", "size", "vocabulary"),
    [(1, 0, 3, 5), (2, 1, 3, 5), (9, 3, 40, 5), (9, 0, 1, 5), (9, 4, 4, 1)],
    ids=["empty", "one-entry", "larger-than-the-split", "size-one", "all-the-same-token"],
)
def test_both_readers_agree_with_the_papers_over_the_whole_vocabulary(
    reader, theta, length, before, size, vocabulary
):
    keys, tokens = stream(length, vocabulary=vocabulary)
    scores = torch.randn(length - before, VOCABULARY, generator=torch.Generator().manual_seed(3))
    log_p, log_z = scores.log_softmax(-1), scores.logsumexp(-1, keepdim=True)
    first = torch.arange(before, length).sub(size).clamp(min=0)
    at = Recent(keys, tokens, first, "dot", size)
    entries = recent_entries(at)
    read = (Interpolate() if reader == "interpolate" else Joint()).read
    dense = read(log_p, log_z, dense_log_sums(entries, theta, size, VOCABULARY), 0.4).exp()
    targets = tokens[before:].long()
    log_sums = target_log_sums(entries, recent_matches(at), [theta], [size]).at(0, 0)
    lone = read(log_p.gather(1, targets[:, None])[:, 0], log_z[:, 0], log_sums, 0.4).exp()
    for row, t in enumerate(range(before, length)):
        near = oracle.positions_read(t, size=size)
        held = oracle.memory(keys.tolist(), tokens.tolist(), t, near, "dot", theta)
        if reader == "interpolate":
            want = oracle.interpolated(log_p[row].exp().tolist(), held, 0.4)
        else:
            want = oracle.joint(scores[row].tolist(), held, 0.4)
        assert dense[row].tolist() == pytest.approx(want, rel=1e-4, abs=1e-7)
        assert lone[row].item() == pytest.approx(want[targets[row]], rel=1e-4)


def test_a_unigram_cache_is_the_share_of_the_token_in_the_past():
    keys, _ = stream(7)
    tokens = torch.tensor([1, 2, 1, 1, 0, 2, 1], dtype=torch.int32)
    at = Recent(keys, tokens, torch.tensor([1]), "dot", 5)
    log_sums = target_log_sums(recent_entries(at), recent_matches(at), [0.0], [1, 2, 5])
    assert log_sums.log_prob[0, :, 0].exp().tolist() == pytest.approx([0.0, 0.0, 2 / 5])


@pytest.mark.parametrize("offset", [0.0, 3e3])
def test_squared_distances_keep_their_digits_when_all_keys_lie_far_out(offset):
    keys = torch.randn(60, 16, generator=torch.Generator().manual_seed(1)) + offset
    tokens = torch.zeros(60, dtype=torch.int32)
    entries = recent_entries(Recent(keys, tokens, torch.arange(40, 60) - 40, "l2", 40))
    for row in range(20):
        past = keys[row : row + 40].flip(0).double()
        want = -(keys[row + 40].double() - past).square().sum(-1)
        torch.testing.assert_close(
            entries.scores[row].double(), want, rtol=1e-5, atol=1e-3 if offset else 1e-4
        )


def test_no_squared_distance_is_negative():
    keys = torch.full((6, 4), 1e4) + torch.arange(6)[:, None] // 3
    entries = recent_entries(
        Recent(keys, torch.zeros(6, dtype=torch.int32), torch.arange(3, 6) - 3, "l2", 3)
    )
    assert (entries.scores <= 0).all()


def test_half_precision_keys_are_compared_in_float32():
    keys = torch.randn(8, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    tokens = torch.zeros(8, dtype=torch.int32)
    got, want = (
        recent_entries(Recent(k, tokens, torch.zeros(4).long(), "dot", 8))
        for k in (keys, keys.float())
    )
    assert got.scores.dtype == torch.float32
    torch.testing.assert_close(got.scores, want.scores)


def test_a_block_is_read_as_its_positions_are_one_at_a_time():
    keys, tokens = stream(12)
    size = 5
    first = torch.arange(12).sub(size).clamp(min=0)
    block = recent_entries(Recent(keys, tokens, first, "dot", size))
    for t in range(12):
        alone = recent_entries(Recent(keys[: t + 1], tokens[: t + 1], first[t:][:1], "dot", size))
        assert written_out(block, t) == written_out(alone, 0)


def test_cells_stand_in_the_order_of_cutoffs_not_of_scores():
    entries = recent_entries(
        Recent(torch.tensor([[9.0], [1.0], [1.0]]), torch.arange(3), torch.tensor([0]), "dot", 2)
    )
    assert isinstance(entries, Entries)
    assert entries.scores.tolist() == [[1.0, 9.0]]
    log_sums = target_log_sums(entries, find_matches(entries, torch.tensor([1])), [1.0], [1, 2])
    assert log_sums.log_prob[0, :, 0].tolist() == pytest.approx(
        [0.0, -8 - math.log1p(math.exp(-8))]
    )
