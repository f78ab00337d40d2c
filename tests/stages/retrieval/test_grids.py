import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.entries import Entries
from stages.memory.readers.reader import Interpolate
from stages.retrieval.grids import (
    TEMPERATURE_FRACTIONS,
    GridIndex,
    Point,
    ReadingGrid,
    best_points,
    interior,
    score_spread,
)
from stages.retrieval.scored_range import Retrieved, retrieve
from stages.retrieval.weights.composition import (
    Composition,
    compose,
    compose_dense,
    read_points,
)
from stages.retrieval.weights.grid import grid_nll
from tests.oracles import memory as oracle


def random_case(seed, n=6, k=5):
    """Entries of n positions, some of them missing, targets and what the model alone says."""
    random = torch.Generator().manual_seed(seed)
    scores = -torch.rand((n, k), generator=random).mul(9).sort(-1).values
    values = torch.randint(0, 3, (n, k), generator=random, dtype=torch.int32)
    scores[0, 3:], values[0, 3:] = -torch.inf, -1
    scores[1], values[1] = -torch.inf, -1
    targets = torch.randint(0, 3, (n,), generator=random)
    p_lm = torch.rand(n, generator=random).clamp(min=0.01)
    return Entries(scores, values), targets, p_lm


def slow_nll(readings, targets, p_lm):
    """Σ -log p after readings (entries, cutoff, scale, weight), one position at a time."""
    total = 0.0
    for i, target in enumerate(targets.tolist()):
        p = p_lm[i].item()
        for entries, cutoff, scale, weight in readings:
            row = entries.scores[i].tolist(), entries.values[i].tolist()
            p = oracle.interpolated(p, oracle.probability(*row, target, scale, cutoff), weight)
        total -= math.log(p)
    return total


GRID = ReadingGrid(
    Interpolate(), scales=(0.0, 0.5, 2.0), cutoffs=(1, 2, 5), weights=(0.0, 0.3, 0.9)
)
SECOND = ReadingGrid(Interpolate(), scales=(1.0, 3.0), cutoffs=(4,), weights=(0.1, 0.6))


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=15)
def test_sums_over_the_grid_are_those_of_every_point(seed):
    entries, targets, p_lm = random_case(seed)
    got = grid_nll(p_lm.log(), torch.zeros(6), [retrieve(entries, targets)], [GRID])
    assert got.shape == GRID.shape and got.dtype == np.float64
    for place in np.ndindex(*GRID.shape):
        point = GRID.point_at(GridIndex(*place))
        want = slow_nll([(entries, *point)], targets, p_lm)
        assert got[place] == pytest.approx(want, rel=1e-5)


def test_a_grid_with_the_weight_that_switches_memory_off_has_the_model_alone_in_it_to_the_last_bit():
    entries, targets, p_lm = random_case(5)
    grid = ReadingGrid(
        Interpolate(), GRID.scales, GRID.cutoffs, weights=(0.3, 0.9), off=0.0, tries_off=True
    )
    got = grid_nll(p_lm.log(), torch.zeros(6), [retrieve(entries, targets)], [grid])
    assert got.shape == (3, 3, 3)
    assert (got[:, :, 2] == -p_lm.log().sum(dtype=torch.float64).item()).all()
    best = best_points(got - 100 * (np.arange(3) == 2), [grid], [(1, 2, 5)])
    assert best == (Point(1, 0.0, 0.0),)
    assert interior([grid], best, [(1, 2, 5)]) == [
        {}
    ]  # with no memory read, no scale is better than another


def test_two_readings_make_the_product_of_their_grids():
    (first, targets, p_lm), (second, _, _) = random_case(1), random_case(2)
    retrieved = [retrieve(first, targets), retrieve(second, targets)]
    got = grid_nll(p_lm.log(), torch.zeros(6), retrieved, [GRID, SECOND])
    assert got.shape == (3, 3, 3, 2, 1, 2)
    for place in np.ndindex(*got.shape):
        points = GRID.point_at(GridIndex(*place[:3])), SECOND.point_at(GridIndex(*place[3:]))
        want = slow_nll([(first, *points[0]), (second, *points[1])], targets, p_lm)
        assert got[place] == pytest.approx(want, rel=1e-5)
        weights = [point.weight for point in points]
        steps = zip(retrieved, [GRID, SECOND], points, weights, strict=True)
        log_p, log_p_mem = compose(p_lm.log(), torch.zeros(6), steps)
        assert -log_p.double().sum().item() == pytest.approx(want, rel=1e-5)
        assert log_p_mem.shape == (6, 2)


def test_a_dense_reading_holds_what_is_read_of_the_target_whichever_token_that_is():
    """Of some of the positions: the distribution after two readings, one token after the other."""
    (first, _, _), (second, _, _) = random_case(1), random_case(2)
    points, rows, vocabulary = (Point(2, 2.0, 0.3), Point(4, 3.0, 0.6)), slice(1, 5), 7
    every = torch.rand((6, vocabulary), generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    log_z = torch.linspace(-1, 1, 6)

    def retrieved(token: int) -> list[Retrieved]:
        targets = torch.full((6,), token)
        return [retrieve(first, targets), retrieve(second, targets)]

    def steps(token: int) -> Composition:
        return zip(retrieved(token), [GRID, SECOND], points, [0.3, 0.6], strict=True)

    got = compose_dense(every[rows], log_z[rows], steps(0), rows)
    for token in range(vocabulary):
        want, _ = compose(every[:, token], log_z, steps(token))
        torch.testing.assert_close(got[:, token], want[rows])


def test_several_points_agree_with_one_after_the_other():
    entries, targets, p_lm = random_case(3)
    alone, retrieved = (p_lm.log(), torch.zeros(6)), retrieve(entries, targets)
    points = [Point(1, 2.0, 0.3), Point(2, 0.5, 0.9), Point(5, 2.0, 0.3)]
    for point, (log_p, log_p_mem) in zip(
        points, read_points(*alone, retrieved, GRID, points), strict=True
    ):
        want, memory = compose(*alone, [(retrieved, GRID, point, point.weight)])
        torch.testing.assert_close(log_p, want)
        torch.testing.assert_close(log_p_mem, memory[:, 0])


def test_the_best_point_is_the_smallest_allowed_sum_and_tells_edges():
    nll = np.full(GRID.shape, 10.0)
    nll[1, 0, 1], nll[2, 2, 1] = 1.0, 2.0
    best = best_points(nll, [GRID], [(1, 2, 5)])
    assert best == (Point(1, 0.5, 0.3),)
    inside = {"scale": True, "weight": True, "cutoff": True}  # nothing is below one entry
    assert interior([GRID], best, [(1, 2, 5)]) == [inside]
    best = best_points(nll, [GRID], [(5,)])
    assert best == (Point(5, 2.0, 0.3),)
    assert interior([GRID], best, [(5,)]) == [{"scale": False, "weight": True}]


@pytest.mark.parametrize(("cutoff", "inside"), [(0, False), (1, True), (2, False)])
def test_the_ends_of_a_list_of_cutoffs_are_edges_whatever_else_is_looked_at(cutoff, inside):
    grid = ReadingGrid(Interpolate(), (1.0,), (1, 4, 8, 16, 32), (0.1,))
    nll = np.ones(grid.shape)
    nll[0, 1 + cutoff] = 0.0
    best = best_points(nll, [grid], [(4, 8, 16)])
    assert interior([grid], best, [(4, 8, 16)]) == [{"cutoff": inside}]


def test_a_sum_that_is_no_number_is_never_the_best():
    nll = np.full(GRID.shape, np.nan)
    nll[0], nll[1, 0, 1] = np.inf, 1.0
    assert best_points(nll, [GRID], [(1, 2, 5)]) == (Point(1, 0.5, 0.3),)


def test_the_best_pair_of_two_readings():
    nll = np.full((*GRID.shape, *SECOND.shape), 10.0)
    nll[0, 2, 2, 1, 0, 0] = 1.0
    best = best_points(nll, [GRID, SECOND], [(5,), (4,)])
    assert best == (Point(5, 0.0, 0.9), Point(4, 3.0, 0.1))


def test_equal_sums_give_the_first_point():
    assert best_points(np.zeros(GRID.shape), [GRID], [(2, 5)]) == (Point(2, 0.0, 0.0),)


def test_a_number_without_a_choice_has_no_edge():
    grid = ReadingGrid(Interpolate(), (1.0,), (4,), (0.1, 0.2, 0.3))
    assert interior([grid], [Point(4, 1.0, 0.2)], [(4,)]) == [{"weight": True}]


def test_temperatures_are_measured_by_the_distance_to_the_last_neighbour():
    scores = torch.tensor(
        [[-1.0, -4.0], [-2.0, -6.0], [-1.0, -torch.inf], [-torch.inf, -torch.inf]]
    )
    assert score_spread(scores, "l2") == 4.0
    assert score_spread(scores, "dot") == 3.0


@pytest.mark.parametrize("scores", [[[0.0, 0.0]], [[-torch.inf, -torch.inf]]])
def test_without_spread_temperatures_are_absolute(scores):
    assert score_spread(torch.tensor(scores), "l2") == 1.0


def test_default_temperatures_reach_beyond_where_optima_were_seen():
    assert TEMPERATURE_FRACTIONS[0] < 0.02 and TEMPERATURE_FRACTIONS[-1] > 0.5
    ratios = np.divide(TEMPERATURE_FRACTIONS[1:], TEMPERATURE_FRACTIONS[:-1])
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-3)
