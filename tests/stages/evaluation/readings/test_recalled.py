import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.evaluation.readings.recalled import Part, Recalled, recall
from stages.memory.cells import find_hits, joined
from stages.memory.joint import Joint
from tests.oracles import memory as oracle
from tests.stages.memory.test_cells import VOCABULARY, cells_of, log_or_absent, memories

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
    recent, neighbors = (recall(cells_of(part), targets) for part in rows)
    union = recent.beside(neighbors.fixed(held))
    masses = union.masses(SCALES, cutoffs)
    assert masses.target.shape == masses.total.shape == (len(SCALES), len(cutoffs), n)
    for s, scale in enumerate(SCALES):
        for c, cutoff in enumerate(cutoffs):
            dense = union.dense(slice(0, n), scale, cutoff, VOCABULARY).log_prob
            for i, target in enumerate(targets.tolist()):
                read = sorted(rows[0][i], reverse=True)[:cutoff] + sorted(rows[1][i], reverse=True)[:held]
                scores, values = zip(*read, strict=True) if read else ((), ())
                want = [log_or_absent(mass) for mass in oracle.masses(scores, values, target, scale, len(read))]
                at = masses.at(s, c)
                got = [(part[i] + at.peak[i]).item() for part in (at.target, at.total)]
                assert got == pytest.approx(want, abs=1e-4)
                torch.testing.assert_close(dense[i, target], at.log_prob[i], atol=1e-4, rtol=1e-4)


def test_a_part_far_behind_the_other_keeps_its_digits():
    rows = [[[(3e5, 1), (3e5 - 1, 0)], []], [[(-3e5, 0)], [(-3e5, 1), (-3e5 - 1, 0)]]]
    targets = torch.tensor([0, 0])
    recent, neighbors = (recall(cells_of(part), targets) for part in rows)
    near = -1 - math.log1p(math.exp(-1))
    for union in (recent.beside(neighbors), neighbors.beside(recent)):
        masses = union.masses([1.0], [2]).at(0, 0)
        assert masses.log_prob.tolist() == pytest.approx([near, near], abs=1e-6)
        assert masses.peak.tolist() == [3e5, -3e5]


def test_a_memory_with_nothing_in_any_part_is_empty_and_leaves_the_model_alone():
    nothing = recall(cells_of([[], [(1.0, 2)]]), torch.tensor([1, 2]))
    masses = nothing.beside(nothing).masses([0.0, 1.0], [1])
    assert masses.empty.tolist() == [[[True, False]], [[True, False]]]
    log_p = torch.tensor([-2.0, -3.0])
    read = Joint.read(log_p, torch.zeros(2), masses.at(1, 0), 0.0)
    assert read[0] == -2.0 and read[1] > -3.0


def test_one_part_is_what_it_is_alone():
    one = recall(cells_of([[(1.0, 0), (0.5, 1)]]), torch.tensor([1]))
    masses = one.parts[0].masses([1.0], [2])
    assert joined([masses]) is masses


def test_some_of_the_positions_keep_what_is_read_whatever_the_cutoff():
    cells, targets = cells_of([[(2.0, 0), (1.0, 1)], [(2.0, 1), (1.0, 0)], [(1.0, 1)]]), torch.tensor([0, 0, 1])
    rows = torch.tensor([1, 2])
    every = Recalled((Part(cells, find_hits(cells, targets), reads=2), *recall(cells, targets).parts))
    some = every.taken(rows, targets[rows])
    whole, part = (one.masses(SCALES, [1]) for one in (every, some))
    torch.testing.assert_close(whole.target[..., rows], part.target)
    torch.testing.assert_close(whole.total[..., rows], part.total)


def test_hits_are_counted_among_neighbours_alone():
    targets = torch.tensor([0, 0, 0])
    recent = recall(cells_of([[(3.0, 0)], [(3.0, 0)], [(3.0, 0)]]), targets)
    neighbors = recall(cells_of([[(3.0, 1), (2.0, 0)], [(3.0, 0)], [(3.0, 2)]]), targets)
    assert recent.beside(neighbors).first_hits.tolist() == [1, 0, 2]
