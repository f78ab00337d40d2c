import math

import numpy as np
import pytest
import torch

from stages.memory import weight_network
from stages.memory.weight_network import (
    AGREEMENTS,
    COUNTS,
    LENGTHS,
    PRIOR,
    FittedWeights,
    LengthWeights,
    WeightPositions,
    bins,
    fit_weight,
    learn,
)
from tests.builders.limits import limit
from tests.oracles import learned_weight as oracle

LEAST = 2000


@pytest.fixture(autouse=True)
def short_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, min_positions_of_fit=LEAST // weight_network.FOLDS)


def told_apart(n: int = LEAST, seed: int = 0) -> WeightPositions:
    """WeightPositions of which the first input says whether the memory is right (p_mem .9 against .1) or
    wrong (.01).
    """
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 4, generator=random).double()
    right = inputs[:, 0] > 0.3
    return WeightPositions(
        inputs, torch.full((n,), 0.1).double().log(), torch.where(right, 0.9, 0.01).double().log()
    )


def blind(positions: WeightPositions) -> WeightPositions:
    """The same, of whose targets the inputs say nothing."""
    order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(1))
    return WeightPositions(positions.inputs[order], positions.log_p, positions.log_p_mem)


def best_weight(positions: WeightPositions) -> float:
    grid = torch.arange(0.01, 1, 0.01).double()
    return float(grid[torch.stack([positions.read(w.logit()).sum() for w in grid]).argmax()])


def test_weights_are_those_of_the_formula():
    positions = told_apart(2000)
    network = fit_weight(positions, 0.4)
    want = [oracle.weight(network.record, row) for row in positions.inputs[:20].tolist()]
    np.testing.assert_allclose(
        network.logits(positions.inputs[:20]).sigmoid().numpy(), want, rtol=1e-12
    )


def test_it_learns_when_the_memory_is_right():
    positions = told_apart()
    constant = best_weight(positions)
    learned = learn(positions, constant, positions.read_with(constant))
    assert learned is not None and learned.significant
    weights, right = (
        learned.network.logits(positions.inputs).sigmoid(),
        positions.log_p_mem > math.log(0.5),
    )
    assert weights[right].mean() > constant + 0.1 > constant - 0.1 > weights[~right].mean()
    best = torch.maximum(positions.log_p, positions.log_p_mem)
    assert min(learned.gains) > 0.7 * float((best - positions.read_with(constant)).mean())


@pytest.mark.parametrize("seed", range(3))
def test_it_is_not_trusted_where_there_is_nothing_to_learn(seed):
    positions = blind(told_apart(seed=seed))
    constant = best_weight(positions)
    learned = learn(positions, constant, positions.read_with(constant))
    assert learned is not None and not learned.significant


def test_gains_are_of_positions_that_were_not_fitted():
    """Every run of positions follows a rule of its own, so what the others teach is wrong there."""
    positions = told_apart()
    run = torch.arange(len(positions)) * weight_network.FOLDS // len(positions)
    signs = torch.randn(
        weight_network.FOLDS, 4, generator=torch.Generator().manual_seed(2)
    ).double()
    right = (positions.inputs * signs[run]).sum(-1) > 0
    other = WeightPositions(
        positions.inputs, positions.log_p, torch.where(right, 0.9, 0.01).double().log()
    )
    fitted = fit_weight(other, 0.4)
    inside = (other.read(fitted.logits(other.inputs)) - other.read(fitted.offset)).mean()
    learned = learn(other, 0.4, other.read_with(0.4))
    assert learned is not None and learned.mean < inside


def test_gains_are_counted_from_the_best_without_a_network():
    positions = told_apart()
    over_weight, over_model = (
        learn(positions, 0.3, one) for one in (positions.read_with(0.3), positions.log_p)
    )
    assert over_weight is not None and over_model is not None
    between = float((positions.read_with(0.3) - positions.log_p).mean())
    assert over_model.mean - over_weight.mean == pytest.approx(between)


def test_too_few_positions_teach_nothing():
    positions = told_apart(LEAST - 1)
    assert learn(positions, 0.4, positions.read_with(0.4)) is None


def test_absent_targets_leave_weights_between_0_and_1():
    positions = told_apart(2000)
    positions.log_p_mem[::2] = -torch.inf
    positions.log_p_mem[1::4] = 0.0
    network = fit_weight(positions, 0.4)
    weights = network.logits(positions.inputs).sigmoid()
    assert ((weights > 0) & (weights < 1)).all() and (weights.float() < 1).all()


def test_sureness_counts_standard_errors():
    network = fit_weight(told_apart(100), 0.4)
    gains = [0.01, 0.02, 0.03, 0.04, 0.05]
    learned = FittedWeights(network, gains)
    assert learned.error == pytest.approx(np.std(gains, ddof=1) / math.sqrt(5))
    assert learned.significant == (weight_network.SIGNIFICANT * learned.error < 0.03)
    assert not FittedWeights(network, [0.0] * 5).significant


def slow_bin(length: float, count: float, agreement: float) -> tuple[int, int, int]:
    pairs = ((length, LENGTHS), (count, COUNTS), (agreement, AGREEMENTS))
    return tuple(sum(value >= edge for edge in edges) for value, edges in pairs)


def test_a_bin_is_the_number_of_edges_below() -> None:
    random = np.random.default_rng(0)
    inputs = np.stack(
        [random.integers(0, 90, 200), random.integers(0, 30, 200), random.random(200).round(2)], 1
    )
    found = bins(torch.from_numpy(inputs))
    sizes = [len(edges) + 1 for edges in (LENGTHS, COUNTS, AGREEMENTS)]
    assert found.tolist() == [int(np.ravel_multi_index(slow_bin(*row), sizes)) for row in inputs]


def test_each_weight_is_the_most_likely_one_with_its_prior() -> None:
    random = np.random.default_rng(1)
    inputs = np.array([[1, 1, 1.0], [5, 2, 0.5], [40, 20, 1.0]])[random.integers(0, 3, 300)]
    model, memory = random.random(300) * 0.5, random.random(300) * (random.random(300) > 0.4)
    with np.errstate(divide="ignore"):
        positions = WeightPositions(
            *(torch.from_numpy(one) for one in (inputs, np.log(model), np.log(memory)))
        )
    fitted, first = (
        LengthWeights.fit(positions, 0.3),
        LengthWeights.fit(positions, 0.3).record["weights"],
    )
    tried = np.linspace(1e-4, 1 - 1e-4, 5001)
    for row in np.unique(inputs, axis=0):
        own = (inputs == row).all(1)
        each = np.log((1 - tried[:, None]) * model[own] + tried[:, None] * memory[own]).sum(1)
        likelihood = each + PRIOR * (0.3 * np.log(tried) + 0.7 * np.log(1 - tried))
        found = float(fitted.logits(torch.from_numpy(row[None])).sigmoid())
        assert abs(found - tried[likelihood.argmax()]) < 5e-4
    elsewhere = fitted.logits(torch.tensor([[7.0, 1.0, 0.6]])).sigmoid()
    assert math.isclose(
        float(elsewhere), 0.3, abs_tol=1e-6
    )  # nothing was seen there: one weight for all
    assert LengthWeights.of_record(fitted.record).record["weights"] == first


def test_a_memory_that_is_always_right_or_never_has_finite_weights() -> None:
    inputs = torch.tensor([[1.0, 1, 1], [40.0, 1, 1]]).repeat_interleave(500, 0)
    right = torch.zeros(1000, dtype=torch.float64)
    right[:500] = -torch.inf
    positions = WeightPositions(inputs, torch.full((1000,), -800.0, dtype=torch.float64), right)
    low, high = (
        LengthWeights.fit(positions, 0.5)
        .logits(torch.tensor([[1.0, 1, 1], [40.0, 1, 1]]))
        .sigmoid()
    )
    assert 0 < low < 0.02 and 0.98 < high < 1
