import math

import pytest
import torch

from stages.memory.entries import LogSums
from stages.memory.readers.reader import Interpolate, interpolate
from stages.memory.readers.settings import GRID
from tests.oracles import memory as oracle
from tests.stages.memory.readers.contract import ReaderContract


@pytest.mark.parametrize("lam", [0.0, 0.25, 0.999])
def test_agrees_with_the_formula(lam):
    torch.manual_seed(0)
    p_lm = torch.rand(5, 7, dtype=torch.float64).softmax(-1)
    p_mem = torch.eye(7, dtype=torch.float64)[:5]
    got = interpolate(p_lm.log(), p_mem.log(), lam).exp()
    want = [
        [oracle.interpolated(a, b, lam) for a, b in zip(r, s, strict=True)]
        for r, s in zip(p_lm.tolist(), p_mem.tolist(), strict=True)
    ]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=0)


def test_an_absent_token_costs_exactly_the_weight_of_the_model():
    got = interpolate(torch.tensor([-3.0]), torch.tensor([-math.inf]), 0.25)
    assert got.item() == pytest.approx(-3.0 + math.log(0.75))


@pytest.mark.parametrize("lam", [1.0, -0.1, math.nan])
def test_a_weight_outside_its_range_is_refused(lam):
    with pytest.raises(ValueError, match="lambda"):
        interpolate(torch.zeros(1), torch.zeros(1), lam)


def test_the_reader_leaves_positions_without_memory_as_they_were():
    memory = LogSums(
        torch.tensor([-math.inf, -math.inf]), torch.tensor([-math.inf, 2.0]), torch.zeros(2)
    )
    log_p = torch.tensor([-1.0, -1.0])
    got = Interpolate().read(log_p, torch.zeros(2), memory, 0.5)
    torch.testing.assert_close(got, torch.tensor([-1.0, -1.0 + math.log(0.5)]))


def test_several_weights_are_read_at_once():
    memory = LogSums(
        torch.log(torch.tensor([0.5, 1.0])), torch.log(torch.tensor([2.0, 2.0])), torch.zeros(2)
    )
    lams = torch.tensor([[0.0], [0.5]])
    got = Interpolate().read(torch.log(torch.tensor([0.25, 0.25])), torch.zeros(2), memory, lams)
    torch.testing.assert_close(got.exp(), torch.tensor([[0.25, 0.25], [0.25, 0.375]]))


def test_the_default_grid_is_legal_and_rises():
    grid = GRID
    assert list(grid) == sorted(set(grid))
    assert (grid[0], grid[-1]) == (0.02, 0.95)
    assert 0.25 in grid


class TestContract(ReaderContract):
    registered_as = "interpolate"
    ends = (0.0, 1e-30, 0.9999)
