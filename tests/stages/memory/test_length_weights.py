"""Weights by length against the best of many numbers, one bin at a time."""

import math

import numpy as np
import torch

from stages.memory.length_weights import AGREEMENTS, COUNTS, LENGTHS, PRIOR, LengthWeights, bins
from stages.memory.weight_network import Positions


def slow_bin(length: float, count: float, agreement: float) -> tuple[int, int, int]:
    pairs = ((length, LENGTHS), (count, COUNTS), (agreement, AGREEMENTS))
    return tuple(sum(value >= edge for edge in edges) for value, edges in pairs)


def test_a_bin_is_the_number_of_edges_below() -> None:
    random = np.random.default_rng(0)
    inputs = np.stack([random.integers(0, 90, 200), random.integers(0, 30, 200), random.random(200).round(2)], 1)
    found = bins(torch.from_numpy(inputs))
    sizes = [len(edges) + 1 for edges in (LENGTHS, COUNTS, AGREEMENTS)]
    assert found.tolist() == [int(np.ravel_multi_index(slow_bin(*row), sizes)) for row in inputs]


def test_each_weight_is_the_most_likely_one_with_its_prior() -> None:
    random = np.random.default_rng(1)
    inputs = np.array([[1, 1, 1.0], [5, 2, 0.5], [40, 20, 1.0]])[random.integers(0, 3, 300)]
    model, memory = random.random(300) * 0.5, random.random(300) * (random.random(300) > 0.4)
    with np.errstate(divide="ignore"):
        positions = Positions(*(torch.from_numpy(one) for one in (inputs, np.log(model), np.log(memory))))
    fitted, first = LengthWeights.fitted(positions, 0.3), LengthWeights.fitted(positions, 0.3).record["weights"]
    tried = np.linspace(1e-4, 1 - 1e-4, 5001)
    for row in np.unique(inputs, axis=0):
        own = (inputs == row).all(1)
        each = np.log((1 - tried[:, None]) * model[own] + tried[:, None] * memory[own]).sum(1)
        likelihood = each + PRIOR * (0.3 * np.log(tried) + 0.7 * np.log(1 - tried))
        found = float(fitted.logits(torch.from_numpy(row[None])).sigmoid())
        assert abs(found - tried[likelihood.argmax()]) < 5e-4
    elsewhere = fitted.logits(torch.tensor([[7.0, 1.0, 0.6]])).sigmoid()
    assert math.isclose(float(elsewhere), 0.3, abs_tol=1e-6)  # nothing was seen there: one weight for all
    assert LengthWeights.of_record(fitted.record).record["weights"] == first


def test_a_memory_that_is_always_right_or_never_has_finite_weights() -> None:
    inputs = torch.tensor([[1.0, 1, 1], [40.0, 1, 1]]).repeat_interleave(500, 0)
    right = torch.zeros(1000, dtype=torch.float64)
    right[:500] = -torch.inf
    positions = Positions(inputs, torch.full((1000,), -800.0, dtype=torch.float64), right)
    low, high = LengthWeights.fitted(positions, 0.5).logits(torch.tensor([[1.0, 1, 1], [40.0, 1, 1]])).sigmoid()
    assert 0 < low < 0.02 and 0.98 < high < 1
