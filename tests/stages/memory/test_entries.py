import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.entries import (
    Entries,
    dense_log_sums,
    find_matches,
    first_match,
    log_sums_of_stored_tokens,
    target_log_sums,
)
from tests.builders.entries import VOCABULARY, cells_of, log_or_absent, memories
from tests.oracles import memory as oracle


@given(memories, st.sampled_from([0.0, 0.3, 1.0, 7.5]), st.booleans(), st.data())
@settings(deadline=None)
def test_masses_agree_with_sums_of_exponentials(rows, scale, best_first, data):
    entries = cells_of(rows, best_first)
    k = entries.scores.shape[1]
    targets = torch.tensor(
        data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    )
    cutoffs = sorted(data.draw(st.sets(st.integers(1, k + 2), min_size=1, max_size=4)))
    log_sums = target_log_sums(entries, find_matches(entries, targets), [scale], cutoffs)
    assert log_sums.total.shape == (1, len(cutoffs), len(rows))
    for c, cutoff in enumerate(cutoffs):
        for i, target in enumerate(targets.tolist()):
            row = entries.scores[i].tolist(), entries.values[i].tolist()
            peak = log_sums.max_score[0, c, i]
            got = log_sums.target[0, c, i] + peak, log_sums.total[0, c, i] + peak
            want = [log_or_absent(mass) for mass in oracle.log_sums(*row, target, scale, cutoff)]
            assert [one.item() for one in got] == pytest.approx(want, abs=1e-4)


@given(memories, st.sampled_from([0.0, 0.3, 1.0]), st.data())
@settings(deadline=None)
def test_an_entry_that_stands_for_several_counts_as_often(rows, scale, data):
    entries = cells_of(rows, best_first=False)
    n, k = entries.scores.shape
    counts = data.draw(
        st.lists(st.lists(st.integers(1, 9), min_size=k, max_size=k), min_size=n, max_size=n)
    )
    entries = Entries(entries.scores, entries.values, counts=torch.tensor(counts).float())
    cutoffs = sorted(data.draw(st.sets(st.integers(1, k), min_size=1, max_size=3)))
    targets = torch.zeros(n, dtype=torch.int64)
    log_sums = target_log_sums(entries, find_matches(entries, targets), [scale], cutoffs)
    for c, cutoff in enumerate(cutoffs):
        dense = dense_log_sums(entries, scale, cutoff, VOCABULARY).log_prob.exp()
        held = log_sums_of_stored_tokens(entries, scale, cutoff)
        few = torch.zeros(n, VOCABULARY).scatter_(1, held.tokens, held.log_sums.log_prob.exp())
        for i in range(n):
            row = entries.scores[i].tolist(), entries.values[i].tolist()
            target, total = oracle.log_sums(*row, 0, scale, cutoff, counts[i])
            want = target / total if total else 0.0
            assert log_sums.log_prob[0, c, i].exp().item() == pytest.approx(want, abs=1e-5)
            assert dense[i, 0].item() == few[i, 0].item() == pytest.approx(want, abs=1e-5)


@given(memories, st.sampled_from([0.0, 1.0]), st.data())
@settings(deadline=None)
def test_at_least_so_many_cells_are_read_whatever_the_cutoff(rows, scale, data):
    entries = cells_of(rows, best_first=False)
    n, k = entries.scores.shape
    least = data.draw(st.lists(st.integers(0, k), min_size=n, max_size=n))
    cutoffs = sorted(data.draw(st.sets(st.integers(1, k), min_size=1, max_size=3)))
    entries = Entries(entries.scores, entries.values, torch.tensor(least))
    targets = torch.zeros(n, dtype=torch.int64)
    log_prob = target_log_sums(
        entries, find_matches(entries, targets), [scale], cutoffs
    ).log_prob.exp()
    for c, cutoff in enumerate(cutoffs):
        for i in range(n):
            row = entries.scores[i].tolist(), entries.values[i].tolist()
            want = oracle.probability(*row, 0, scale, max(cutoff, least[i]))
            assert log_prob[0, c, i].item() == pytest.approx(want or 0.0, abs=1e-5)
            dense = dense_log_sums(entries, scale, cutoff, VOCABULARY).log_prob.exp()
            assert dense[i, 0].item() == pytest.approx(want or 0.0, abs=1e-5)


def test_a_small_cutoff_keeps_its_digits_beside_a_far_better_cell():
    rows = [[(0.0, 1), (-0.5, 0), (700.0, 0)], [(-3e5, 1), (-3e5 - 0.5, 0), (3e5, 2)]]
    entries = cells_of(rows, best_first=False)
    log_sums = target_log_sums(
        entries, find_matches(entries, torch.tensor([0, 0])), [1.0], [1, 2, 3]
    )
    near = -0.5 - math.log1p(math.exp(-0.5))
    assert log_sums.log_prob[0, 0].tolist() == [-math.inf, -math.inf]
    assert log_sums.log_prob[0, 1].tolist() == pytest.approx([near, near], abs=1e-6)
    assert log_sums.log_prob[0, 2, 0].item() == pytest.approx(0.0, abs=1e-6)
    assert log_sums.log_prob[0, 2, 1].item() == pytest.approx(-6e5, rel=1e-6)
    assert log_sums.max_score[0].tolist() == [[0.0, -3e5], [0.0, -3e5], [700.0, 3e5]]


def test_every_scale_gives_what_it_gives_alone():
    entries = cells_of([[(1.0, 0), (0.5, 1), (-2.0, 0)], [(0.0, 2)]])
    matches = find_matches(entries, torch.tensor([0, 2]))
    together = target_log_sums(entries, matches, [0.5, 2.0], [1, 3]).log_prob
    for s, scale in enumerate([0.5, 2.0]):
        torch.testing.assert_close(
            together[s], target_log_sums(entries, matches, [scale], [1, 3]).log_prob[0]
        )


def test_an_absent_target_has_no_probability_and_an_empty_memory_is_flagged():
    entries = cells_of([[(1.0, 0)], [], [(3.0, 2)]])
    log_sums = target_log_sums(entries, find_matches(entries, torch.tensor([1, 1, 2])), [1.0], [1])
    assert log_sums.empty.tolist() == [[[False, True, False]]]
    assert log_sums.log_prob.tolist() == [[[-math.inf, -math.inf, 0.0]]]


def test_ties_share_their_probability():
    entries = cells_of([[(2.0, 0), (2.0, 1), (2.0, 1), (2.0, 3)]])
    log_sums = target_log_sums(entries, find_matches(entries, torch.tensor([1])), [5.0], [4])
    assert log_sums.log_prob.exp().item() == pytest.approx(0.5)


def test_a_target_far_behind_the_best_keeps_its_log_probability():
    entries = cells_of([[(0.0, 0), (-400.0, 1), (-401.0, 1)]])
    log_sums = target_log_sums(entries, find_matches(entries, torch.tensor([1])), [1.0], [1, 3])
    assert log_sums.log_prob[0, 0, 0].item() == -math.inf
    assert log_sums.log_prob[0, 1, 0].item() == pytest.approx(-400 + math.log1p(math.exp(-1)))


def test_large_distances_do_not_overflow():
    entries = cells_of([[(-1e6, 0), (-1e6 - 1, 1)]])
    log_sums = target_log_sums(entries, find_matches(entries, torch.tensor([0])), [1.0], [2])
    assert log_sums.log_prob.item() == pytest.approx(-math.log1p(math.exp(-1)), abs=1e-6)


@given(memories, st.sampled_from([0.0, 0.5, 2.0]), st.booleans())
@settings(deadline=None)
def test_dense_holds_the_masses_of_every_token(rows, scale, best_first):
    entries = cells_of(rows, best_first)
    dense = dense_log_sums(entries, scale, 5, VOCABULARY)
    assert dense.target.shape == (len(rows), VOCABULARY)
    assert dense.total.shape == dense.max_score.shape == (len(rows), 1)
    for token in range(VOCABULARY):
        targets = torch.full((len(rows),), token)
        lone = target_log_sums(entries, find_matches(entries, targets), [scale], [5]).at(0, 0)
        for part in ("log_prob", "empty"):
            torch.testing.assert_close(
                getattr(dense, part).expand(-1, VOCABULARY)[:, token], getattr(lone, part)
            )
        torch.testing.assert_close(dense.max_score[:, 0], lone.max_score)


def test_the_first_hit_is_the_place_of_the_first_cell_with_the_target():
    entries = cells_of([[(3.0, 1), (2.0, 0), (1.0, 0)], [(3.0, 1)], []])
    matches = find_matches(entries, torch.tensor([0, 0, 0]))
    np.testing.assert_array_equal(first_match(matches, 3, 3), [1, 3, 3])
