import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.entries import Entries, LogSums, dense_log_sums, find_matches, target_log_sums
from stages.memory.readers.reader import Joint
from stages.memory.readers.settings import JOINT_GRID
from tests.oracles import neural_cache as oracle
from tests.stages.memory.readers.contract import ReaderContract

VOCABULARY = 4

numbers = st.floats(-40, 40, width=32)
cells_of_one = st.lists(st.tuples(numbers, st.integers(0, VOCABULARY - 1)), min_size=1, max_size=6)


def entries_from(pairs):
    return Entries(torch.tensor([[s for s, _ in pairs]]), torch.tensor([[v for _, v in pairs]]))


def log_sums_from(pairs, target):
    entries = entries_from(pairs)
    return target_log_sums(
        entries, find_matches(entries, torch.tensor([target])), [1.0], [len(pairs)]
    ).at(0, 0)


@given(
    cells_of_one,
    st.lists(numbers, min_size=VOCABULARY, max_size=VOCABULARY),
    st.floats(-20, 20),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_agrees_with_one_softmax_over_both(pairs, vocabulary_scores, alpha, target):
    scores = torch.tensor(vocabulary_scores)
    got = Joint().read(
        scores.log_softmax(-1)[target], scores.logsumexp(-1), log_sums_from(pairs, target), alpha
    )
    want = oracle.joint(vocabulary_scores, pairs, alpha)[target]
    assert got.item() == pytest.approx(math.log(want) if want > 1e-35 else got.item(), abs=1e-4)


@given(
    cells_of_one, st.lists(numbers, min_size=VOCABULARY, max_size=VOCABULARY), st.floats(-20, 20)
)
@settings(deadline=None)
def test_the_whole_vocabulary_sums_to_one(pairs, vocabulary_scores, alpha):
    scores = torch.tensor([vocabulary_scores])
    dense = dense_log_sums(entries_from(pairs), 1.0, len(pairs), VOCABULARY)
    got = (
        Joint().read(scores.log_softmax(-1), scores.logsumexp(-1, keepdim=True), dense, alpha).exp()
    )
    assert got.sum().item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("max_score", [1e6, -1e6, 5e4])
@pytest.mark.parametrize("log_z", [0.0, 1e6])
def test_large_scores_keep_their_digits(max_score, log_z):
    memory = LogSums(
        torch.tensor(math.log(0.25)), torch.tensor(math.log(2.0)), torch.tensor(max_score)
    )
    log_p = torch.tensor(math.log(0.5))
    got = Joint().read(log_p, torch.tensor(log_z), memory, 0.0).item()
    if max_score > log_z:
        assert got == pytest.approx(math.log(0.125), abs=1e-6)
    elif max_score < log_z:
        assert got == pytest.approx(math.log(0.5), abs=1e-6)
    else:
        assert got == pytest.approx(math.log(0.75 / 3), abs=1e-6)


def test_an_absent_target_pays_for_the_memory_and_no_more():
    memory = LogSums(torch.tensor(-math.inf), torch.tensor(0.0), torch.tensor(0.0))
    got = Joint().read(torch.tensor(math.log(0.5)), torch.tensor(0.0), memory, 0.0)
    assert got.item() == pytest.approx(math.log(0.25))


def test_positions_without_memory_stay_exactly_as_they_were():
    memory = LogSums(torch.full((2,), -math.inf), torch.tensor([-math.inf, 0.0]), torch.zeros(2))
    log_p = torch.tensor([-1.2345678, -1.0])
    got = Joint().read(log_p, torch.tensor([3e5, 0.0]), memory, 30.0)
    assert got[0] == log_p[0]
    assert got[1] < -30


def test_several_biases_are_read_at_once():
    memory = LogSums(
        torch.log(torch.tensor([1.0, 0.5])),
        torch.log(torch.tensor([2.0, 1.0])),
        torch.tensor([0.0, 3.0]),
    )
    log_p, log_z = torch.log(torch.tensor([0.25, 0.5])), torch.tensor([1.0, 2.0])
    together = Joint().read(log_p, log_z, memory, torch.tensor([[-3.0], [2.0]]))
    for row, alpha in zip(together, (-3.0, 2.0), strict=True):
        torch.testing.assert_close(row, Joint().read(log_p, log_z, memory, alpha))


def test_the_default_grid_rises_and_holds_no_bias():
    grid = JOINT_GRID
    assert list(grid) == sorted(set(grid))
    assert (grid[0], grid[-1]) == (-20.0, 10.0)
    assert 0.0 in grid


class TestContract(ReaderContract):
    registered_as = "joint"
    ends = (-1e4, -100.0, 100.0, 1e4)
