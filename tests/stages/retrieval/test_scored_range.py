import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.entries import Entries, find_matches, join_log_sums
from stages.memory.readers.reader import Joint
from stages.retrieval.scored_range import MatchedEntries, Retrieved, retrieve
from tests.builders.entries import VOCABULARY, cells_of, log_or_absent, memories
from tests.oracles import memory as oracle

SCALES = [0.0, 0.5, 2.0]


def padded(rows, n):
    """Memories of n positions, of which the last have none if there are fewer."""
    return [*rows[:n], *[[] for _ in range(n - len(rows))]]


@given(
    memories,
    memories,
    st.integers(1, 9),
    st.lists(st.integers(1, 10), min_size=1, max_size=3, unique=True),
)
@settings(deadline=None)
def test_two_parts_are_one_memory(first, second, held, cutoffs):
    n, cutoffs = max(len(first), len(second)), sorted(cutoffs)
    rows = [padded(first, n), padded(second, n)]
    targets = torch.arange(n) % VOCABULARY
    recent, neighbors = (retrieve(cells_of(part), targets) for part in rows)
    union = recent.concat(neighbors.fixed(held))
    log_sums = union.log_sums(SCALES, cutoffs)
    assert log_sums.target.shape == log_sums.total.shape == (len(SCALES), len(cutoffs), n)
    for s, scale in enumerate(SCALES):
        for c, cutoff in enumerate(cutoffs):
            few = union.stored_tokens(slice(0, n), scale, cutoff)
            dense = torch.full((n, VOCABULARY), -torch.inf).scatter_(
                1, few.tokens, few.log_sums.log_prob
            )
            for i, target in enumerate(targets.tolist()):
                read = (
                    sorted(rows[0][i], reverse=True)[:cutoff]
                    + sorted(rows[1][i], reverse=True)[:held]
                )
                scores, values = zip(*read, strict=True) if read else ((), ())
                want = [
                    log_or_absent(mass)
                    for mass in oracle.log_sums(scores, values, target, scale, len(read))
                ]
                at = log_sums.at(s, c)
                got = [(part[i] + at.max_score[i]).item() for part in (at.target, at.total)]
                assert got == pytest.approx(want, abs=1e-4)
                torch.testing.assert_close(dense[i, target], at.log_prob[i], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("first", [True, False])
def test_entries_that_stand_for_several_weigh_as_much_beside_others_whatever_is_asked(first):
    """Of the targets, of all tokens that are held, and of each entry."""
    counted = Entries(
        torch.tensor([[1.0, 0.5, 0.0]]),
        torch.tensor([[2, 0, 2]]),
        counts=torch.tensor([[3.0, 7, 1]]),
    )
    parts = [
        retrieve(counted, torch.tensor([2])),
        retrieve(cells_of([[(0.7, 2), (0.2, 1)]]), torch.tensor([2])),
    ]
    union = parts[0].concat(parts[1]) if first else parts[1].concat(parts[0])
    for scale, cutoff in ((0.0, 2), (1.5, 3)):
        (
            read := [(3 * math.exp(scale), 2), (7 * math.exp(0.5 * scale), 0), (1, 2)][:cutoff]
        ).extend([(math.exp(0.7 * scale), 2), (math.exp(0.2 * scale), 1)][:cutoff])
        total = sum(weight for weight, _ in read)
        wanted = [
            sum(weight for weight, value in read if value == token) / total
            for token in range(VOCABULARY)
        ]
        held = union.stored_tokens(slice(0, 1), scale, cutoff)
        dense = torch.zeros(1, VOCABULARY).scatter_(1, held.tokens, held.log_sums.log_prob.exp())
        assert dense[0].tolist() == pytest.approx(wanted, rel=1e-5)
        assert union.log_sums([scale], [cutoff]).at(0, 0).log_prob.exp().item() == pytest.approx(
            wanted[2], rel=1e-5
        )
        own = union.weights(scale, cutoff)[0 if first else 1][0].tolist()
        assert own[:cutoff] == pytest.approx(
            [weight / total for weight, _ in read[:cutoff]], rel=1e-5
        )


def test_a_part_far_behind_the_other_keeps_its_digits():
    rows = [[[(3e5, 1), (3e5 - 1, 0)], []], [[(-3e5, 0)], [(-3e5, 1), (-3e5 - 1, 0)]]]
    targets = torch.tensor([0, 0])
    recent, neighbors = (retrieve(cells_of(part), targets) for part in rows)
    near = -1 - math.log1p(math.exp(-1))
    for union in (recent.concat(neighbors), neighbors.concat(recent)):
        log_sums = union.log_sums([1.0], [2]).at(0, 0)
        assert log_sums.log_prob.tolist() == pytest.approx([near, near], abs=1e-6)
        assert log_sums.max_score.tolist() == [3e5, -3e5]


def test_a_memory_with_nothing_in_any_part_is_empty_and_leaves_the_model_alone():
    nothing = retrieve(cells_of([[], [(1.0, 2)]]), torch.tensor([1, 2]))
    log_sums = nothing.concat(nothing).log_sums([0.0, 1.0], [1])
    assert log_sums.empty.tolist() == [[[True, False]], [[True, False]]]
    log_p = torch.tensor([-2.0, -3.0])
    read = Joint().read(log_p, torch.zeros(2), log_sums.at(1, 0), 0.0)
    assert read[0] == -2.0 and read[1] > -3.0


def test_one_part_is_what_it_is_alone():
    one = retrieve(cells_of([[(1.0, 0), (0.5, 1)]]), torch.tensor([1]))
    log_sums = one.parts[0].log_sums([1.0], [2])
    assert join_log_sums([log_sums]) is log_sums


def test_some_of_the_positions_keep_what_is_read_whatever_the_cutoff():
    entries, targets = (
        cells_of([[(2.0, 0), (1.0, 1)], [(2.0, 1), (1.0, 0)], [(1.0, 1)]]),
        torch.tensor([0, 0, 1]),
    )
    rows = torch.tensor([1, 2])
    every = Retrieved(
        (
            MatchedEntries(entries, find_matches(entries, targets), reads=2),
            *retrieve(entries, targets).parts,
        )
    )
    some = every.select(rows, targets[rows])
    whole, part = (one.log_sums(SCALES, [1]) for one in (every, some))
    torch.testing.assert_close(whole.target[..., rows], part.target)
    torch.testing.assert_close(whole.total[..., rows], part.total)


def test_hits_are_counted_among_neighbours_alone():
    targets = torch.tensor([0, 0, 0])
    recent = retrieve(cells_of([[(3.0, 0)], [(3.0, 0)], [(3.0, 0)]]), targets)
    neighbors = retrieve(cells_of([[(3.0, 1), (2.0, 0)], [(3.0, 0)], [(3.0, 2)]]), targets)
    assert recent.concat(neighbors).first_matches.tolist() == [1, 0, 2]
