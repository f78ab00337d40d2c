"""The recurrence of cells: against a loop over numbers, and against autograd through a loop over positions."""

import numpy as np
import pytest
import torch

from stages.models.layers import recurrence
from stages.models.layers.recurrence import cells
from tests.kernels import DEVICE, needs_triton
from tests.oracles import sru_plus_plus as oracle


def drawn(length=7, rows=3, width=5, scale=2.0, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = [(length, rows, width), (length, rows, width), (width,), (rows, width)]
    return [scale * torch.randn(shape, dtype=torch.float64, generator=random) for shape in shapes]


def through_time(u, z, v, c):
    made = []
    for t in range(len(u)):
        f = torch.sigmoid(z[t] + v * c)
        c = f * c + (1 - f) * u[t]
        made.append(c)
    return torch.stack(made)


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
def test_cells_are_those_of_the_equations(length, scale):
    """A scale of 300 closes and opens gates for good."""
    inputs = drawn(length, scale=scale)
    got = cells(*inputs)
    for row in range(3):
        u, z, v, before = (part.numpy() for part in inputs)
        with np.errstate(over="ignore"):
            want = oracle.cells(u[:, row], z[:, row], v, before[row])
        np.testing.assert_allclose(got[:, row], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 6])
def test_gradients_are_those_through_a_loop(length):
    mine, slow = ([part.clone().requires_grad_() for part in drawn(length, seed=1)] for _ in range(2))
    seed = torch.randn(length, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    got = torch.autograd.grad((cells(*mine) * seed).sum(), mine)
    for one, want in zip(got, torch.autograd.grad((through_time(*slow) * seed).sum(), slow), strict=True):
        torch.testing.assert_close(one, want, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_small_steps():
    assert torch.autograd.gradcheck(cells, [part.requires_grad_() for part in drawn(4, 2, 3, 1.0)])


def test_inputs_are_left_as_they_were():
    inputs = drawn()
    copies = [part.clone() for part in inputs]
    cells(*(part.requires_grad_() for part in inputs)).sum().backward()
    for part, copy in zip(inputs, copies, strict=True):
        assert torch.equal(part, copy)


def in_triton(monkeypatch):
    """Cells as a GPU makes them."""
    monkeypatch.setattr(recurrence, "runs_triton", lambda device: True)
    return lambda *given: cells(*(part.to(DEVICE) for part in given)).cpu()


@needs_triton
@pytest.mark.parametrize(("length", "rows", "width"), [(1, 1, 1), (7, 3, 5), (5, 13, 11)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_kernels_give_the_cells_and_gradients_of_a_loop(monkeypatch, length, rows, width, scale):
    """13 x 11 cells are two programs and a part of a third."""
    mine, slow = ([part.clone().requires_grad_() for part in drawn(length, rows, width, scale)] for _ in range(2))
    seed = torch.randn(length, rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    got, want = in_triton(monkeypatch)(*mine), through_time(*slow)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    grads = (torch.autograd.grad((made * seed).sum(), given) for made, given in ((got, mine), (want, slow)))
    for one, right in zip(*grads, strict=True):
        torch.testing.assert_close(one, right, rtol=1e-12, atol=1e-12)


@needs_triton
def test_kernels_take_float32_that_does_not_lie_in_a_row(monkeypatch):
    u, z, v, before = (part.float() for part in drawn(4, 6, 5, 1.0))
    turned = [part.transpose(0, 1).contiguous().transpose(0, 1) for part in (u, z)]
    torch.testing.assert_close(in_triton(monkeypatch)(*turned, v, before), through_time(u, z, v, before))
