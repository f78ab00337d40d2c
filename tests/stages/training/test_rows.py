"""Tables that learn by the rows that an update reads: beside Adam by row, resumed, clipped, and
what a step touches.
"""

import os
import signal

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stages.models.config import parse_model
from stages.training.optimizer import RowAdam, clip, step_rows
from tests.builders.training import Notes, V, outcome, settings, trainer

RATE, BETAS, EPS = 0.1, (0.8, 0.9), 1e-8
READ = ([0, 2, 2, 5], [2], [0, 5, 1], [5, 2])
"""Rows that updates read, one of them twice."""


def learnt(updates, rows=7, width=3, double=True):
    """A table after updates that read some rows of it, the gradients that these had, and the
    optimizer.
    """
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(rows, width, dtype=torch.float64 if double else None))
    optimizer = RowAdam([table], RATE, BETAS, EPS, fused=True)
    told = []
    for read in updates:
        gradients = torch.randn(len(read), width, dtype=table.dtype)
        F.embedding(torch.tensor(read), table, sparse=True).backward(gradients)
        optimizer.step()
        optimizer.zero_grad()
        told.append((read, gradients))
    return table, told, optimizer


def test_each_row_has_an_adam_of_its_own():
    table, told, _ = learnt(READ)
    torch.manual_seed(0)
    expected = torch.randn_like(table).tolist()
    moments = [[[0.0, 0.0] for _ in row] for row in expected]
    times = [0] * len(expected)
    for read, gradients in told:
        for row in set(read):
            times[row] += 1
            for place in range(3):
                g = sum(float(gradients[i, place]) for i, one in enumerate(read) if one == row)
                m, v = moments[row][place]
                m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g**2
                moments[row][place] = [m, v]
                mean, square = m / (1 - BETAS[0] ** times[row]), v / (1 - BETAS[1] ** times[row])
                expected[row][place] -= RATE * mean / (square**0.5 + EPS)
    torch.testing.assert_close(
        table.detach(), torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=1e-14
    )


def test_a_step_in_float32_is_off_by_less_than_a_fifty_thousandth_of_it():
    """1 - β^t has few digits at the first updates of a row; β₂ is that of the presets, the largest."""
    torch.manual_seed(0)
    updates = torch.cat([torch.arange(1000.0), torch.tensor([1e5, 1e6])])
    drawn = {
        "exp_avg": torch.randn(len(updates), 4),
        "exp_avg_sq": torch.rand(len(updates), 4) + 0.1,
    }
    gradients, steps = torch.randn(len(updates), 4), []
    for dtype in (torch.float32, torch.float64):
        table = torch.zeros(len(updates), 4, dtype=dtype)
        state = {
            name: moment.to(dtype, copy=True)
            for name, moment in (drawn | {"step": updates}).items()
        }
        step_rows(
            table, state, torch.arange(len(updates)), gradients.to(dtype), 1.0, (0.9, 0.999), 1e-8
        )
        steps.append(table.double())
    assert ((steps[0] - steps[1]).abs() < 2e-5 * steps[1].abs() + 1e-6).all()


def test_rows_that_are_not_read_stay_as_they_are():
    table, _, optimizer = learnt([[1], [4, 1]])
    torch.manual_seed(0)
    before, others = torch.randn_like(table), [0, 2, 3, 5, 6]
    assert torch.equal(table[others], before[others])
    assert not any(state[others].any() for state in optimizer.state[table].values())
    assert not torch.equal(table, before)


def test_where_every_update_reads_all_rows_it_is_adam():
    table, told, _ = learnt([range(4)] * 3, rows=4)
    torch.manual_seed(0)
    other = nn.Parameter(torch.randn_like(table))
    adam = torch.optim.Adam([other], RATE, BETAS, EPS, foreach=False)
    for _, gradients in told:
        other.grad = gradients
        adam.step()
    torch.testing.assert_close(table, other, rtol=1e-13, atol=1e-14)


def on_host(chosen):
    table = {
        "name": "hashed-ngrams",
        "slots": 500,
        "entry_width": 4,
        "layers": [1],
        "on_host": chosen,
    }
    sizes = {"width": 8, "heads": 2, "ffn_width": 16, "layers": 1, "dropout": 0.0}
    return parse_model({**sizes, "lookup": table}).sized(V, 8)


class Sizes(TorchDispatchMode):
    """Numbers of the largest tensor that operations made, those aside that were there before."""

    def __init__(self, there):
        super().__init__()
        self.largest, self._there = 0, {tensor.untyped_storage().data_ptr() for tensor in there}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if not isinstance(tensor, torch.Tensor) or tensor.is_sparse:
                continue
            if tensor.untyped_storage().data_ptr() not in self._there:
                self.largest = max(self.largest, tensor.numel())
        return made


@pytest.mark.parametrize("by_rows", [True, False])
def test_an_update_makes_nothing_as_large_as_the_table(tmp_path, by_rows):
    run = trainer(tmp_path, model=on_host(by_rows))
    run._update()  # which makes the moments
    table = run.run.model.backbone.blocks[0].lookup.table
    with Sizes([table, *run.updates.bare_optimizer.state[table].values()]) as sizes:
        run._update()
    assert (sizes.largest < table.numel()) == by_rows


def test_a_run_learns_by_rows_and_resumes_with_the_same_bytes(tmp_path):
    model = on_host(True)
    (tmp_path / "whole").mkdir()
    whole = trainer(tmp_path / "whole", model=model, accumulate=2)
    began = {name: tensor.clone() for name, tensor in whole.run.model.state_dict().items()}
    whole.train()
    folder = tmp_path / "parts"
    folder.mkdir()
    for stop_at in (5, 13):
        notes = Notes(at=lambda step, n=stop_at: step == n and os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            trainer(folder, notes, model=model, accumulate=2).train()
    run = trainer(folder, model=model, accumulate=2)
    run.train()
    assert outcome(folder, run) == outcome(tmp_path / "whole", whole)
    (name,) = (name for name in began if name.endswith("lookup.table"))
    moved = (run.run.model.state_dict()[name] != began[name]).any(1)
    assert 0 < moved.sum() < len(moved)


def test_gradients_of_rows_are_clipped_as_those_of_the_whole_table():
    found = []
    for sparse in (True, False):
        torch.manual_seed(0)
        table, other = nn.Parameter(torch.zeros(6, 2)), nn.Parameter(torch.ones(2))
        (
            F.embedding(torch.tensor([1, 4, 1]), table, sparse=sparse) * torch.randn(3, 2) + other
        ).sum().backward()
        clip([table, other], 0.5)
        found.append((table.grad.to_dense(), other.grad))
    torch.testing.assert_close(*found)
    assert torch.cat([found[0][0].flatten(), found[0][1]]).norm() == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    "asked",
    [
        {"optimizer": {"name": "sgd"}},
        {"optimizer": {"name": "adagrad"}},
        {"compile": True},
        {"method": "ewc"},
    ],
)
def test_what_needs_whole_tables_is_refused(asked):
    with pytest.raises(ValidationError, match=r"on_host"):
        settings(model=on_host(True), **asked)
    settings(model=on_host(False), **asked)
