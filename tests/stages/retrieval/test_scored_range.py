import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.entries import find_matches, joined
from stages.memory.readers.reader import Joint
from stages.retrieval.scored_range import MatchedEntries, Retrieved, retrieve
from tests.oracles import memory as oracle
from tests.stages.memory.test_entries import VOCABULARY, cells_of, log_or_absent, memories

SCALES = [0.0, 0.5, 2.0]


def padded(rows, n):
    """Memories of n positions, of which the last have none if there are fewer."""
    return [*rows[:n], *[[] for _ in range(n - len(rows))]]


@given(memories, memories, st.integers(1, 9), st.lists(st.integers(1, 10), min_size=1, max_size=3, unique=True))
@settings(deadline=None)
def test_two_parts_are_one_memory(first, second, held, cutoffs):
    n, cutoffs = max(len(first), len(second)), sorted(cutoffs)
    rows = [padded(first, n), padded(second, n)]
    targets = torch.arange(n) % VOCABULARY
    recent, neighbors = (retrieve(cells_of(part), targets) for part in rows)
    union = recent.beside(neighbors.fixed(held))
    log_sums = union.log_sums(SCALES, cutoffs)
    assert log_sums.target.shape == log_sums.total.shape == (len(SCALES), len(cutoffs), n)
    for s, scale in enumerate(SCALES):
        for c, cutoff in enumerate(cutoffs):
            held = union.held(slice(0, n), scale, cutoff)
            dense = torch.full((n, VOCABULARY), -torch.inf).scatter_(1, held.tokens, held.log_sums.log_prob)
            for i, target in enumerate(targets.tolist()):
                read = sorted(rows[0][i], reverse=True)[:cutoff] + sorted(rows[1][i], reverse=True)[:held]
                scores, values = zip(*read, strict=True) if read else ((), ())
                want = [log_or_absent(mass) for mass in oracle.log_sums(scores, values, target, scale, len(read))]
                at = log_sums.at(s, c)
                got = [(part[i] + at.max_score[i]).item() for part in (at.target, at.total)]
                assert got == pytest.approx(want, abs=1e-4)
                torch.testing.assert_close(dense[i, target], at.log_prob[i], atol=1e-4, rtol=1e-4)


def test_a_part_far_behind_the_other_keeps_its_digits():
    rows = [[[(3e5, 1), (3e5 - 1, 0)], []], [[(-3e5, 0)], [(-3e5, 1), (-3e5 - 1, 0)]]]
    targets = torch.tensor([0, 0])
    recent, neighbors = (retrieve(cells_of(part), targets) for part in rows)
    near = -1 - math.log1p(math.exp(-1))
    for union in (recent.beside(neighbors), neighbors.beside(recent)):
        log_sums = union.log_sums([1.0], [2]).at(0, 0)
        assert log_sums.log_prob.tolist() == pytest.approx([near, near], abs=1e-6)
        assert log_sums.max_score.tolist() == [3e5, -3e5]


def test_a_memory_with_nothing_in_any_part_is_empty_and_leaves_the_model_alone():
    nothing = retrieve(cells_of([[], [(1.0, 2)]]), torch.tensor([1, 2]))
    log_sums = nothing.beside(nothing).log_sums([0.0, 1.0], [1])
    assert log_sums.empty.tolist() == [[[True, False]], [[True, False]]]
    log_p = torch.tensor([-2.0, -3.0])
    read = Joint().read(log_p, torch.zeros(2), log_sums.at(1, 0), 0.0)
    assert read[0] == -2.0 and read[1] > -3.0


def test_one_part_is_what_it_is_alone():
    one = retrieve(cells_of([[(1.0, 0), (0.5, 1)]]), torch.tensor([1]))
    log_sums = one.parts[0].log_sums([1.0], [2])
    assert joined([log_sums]) is log_sums


def test_some_of_the_positions_keep_what_is_read_whatever_the_cutoff():
    entries, targets = cells_of([[(2.0, 0), (1.0, 1)], [(2.0, 1), (1.0, 0)], [(1.0, 1)]]), torch.tensor([0, 0, 1])
    rows = torch.tensor([1, 2])
    every = Retrieved(
        (MatchedEntries(entries, find_matches(entries, targets), reads=2), *retrieve(entries, targets).parts)
    )
    some = every.taken(rows, targets[rows])
    whole, part = (one.log_sums(SCALES, [1]) for one in (every, some))
    torch.testing.assert_close(whole.target[..., rows], part.target)
    torch.testing.assert_close(whole.total[..., rows], part.total)


def test_hits_are_counted_among_neighbours_alone():
    targets = torch.tensor([0, 0, 0])
    recent = retrieve(cells_of([[(3.0, 0)], [(3.0, 0)], [(3.0, 0)]]), targets)
    neighbors = retrieve(cells_of([[(3.0, 1), (2.0, 0)], [(3.0, 0)], [(3.0, 2)]]), targets)
    assert recent.beside(neighbors).first_matches.tolist() == [1, 0, 2]
