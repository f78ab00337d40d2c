"""Choices from the sums over a row's grid, as they are recorded and as a report holds them."""

import json
from math import exp

import numpy as np
import pytest

from stages.evaluation.row_weights import tuned_row
from stages.memory.readers.settings import GRID as LAMBDAS
from stages.retrieval.grammar import parse_readings
from stages.retrieval.grids import Point, interior
from stages.retrieval.rows import rows_of
from stages.retrieval.sources.source import SourceInputs
from stages.retrieval.weights import grid as module
from stages.retrieval.weights.grid import Fixed, Grid
from tests.builders.limits import limit

CACHE = "long:size=8/16,theta=0.5/1/2,lambda=0.1/0.3,similarity=dot,key=hidden"
INPUTS = SourceInputs(8, False)


def opened(*specs: str) -> Grid:
    row = rows_of(parse_readings(specs), INPUTS, False)[0]
    return Grid(row, row.grids([1.0] * len(specs)))


def after(policy: Grid, *sums: np.ndarray) -> Grid:
    """The policy that knows the choice from the sums of several ranges, through its JSON."""
    choice = policy.choose("tune", [{"nll": one} for one in sums])
    return policy.after("tune", json.loads(json.dumps(choice, allow_nan=False)))


def even(policy: Grid, value: float) -> np.ndarray:
    return np.full([n for grid in policy.grids for n in grid.shape], value)


@pytest.fixture
def policy() -> Grid:
    return opened(CACHE)


def test_the_best_of_the_sums_of_all_ranges_is_chosen_and_comes_back_from_its_record(policy):
    first, second = even(policy, 10.0), even(policy, 10.0)
    first[2, 1, 0], second[0, 1, 1], first[1, 0, 1] = 0.0, 4.0, np.nan
    first[0, 0, 1] = second[0, 0, 1] = 6.0
    policy = after(policy, first, second)
    assert policy.points == (Point(16, 2.0, 0.1),)
    assert interior(policy.grids, policy.best, policy.allowed) == [{"scale": False}]
    assert policy.curve == [Point(8, 0.5, 0.3), Point(16, 2.0, 0.1)]
    grid = policy.describe_grid(tokens=4)
    assert grid["nll"] == [[5.0, 3.5], [5.0, 5.0], [2.5, 5.0]]
    assert (grid["at"], grid["tokens"], grid["scales"], grid["weights"]) == (
        16,
        4,
        [0.5, 1.0, 2.0],
        [0.1, 0.3],
    )


def test_sums_that_are_no_numbers_are_never_chosen_and_recorded_as_none(policy):
    sums = even(policy, np.nan)
    sums[1] = np.inf
    sums[2, 1, 1] = 1.0
    policy = after(policy, sums)
    assert policy.chosen.nll == [[None, None], [None, None], [None, 1.0]]
    assert policy.points == (Point(16, 2.0, 0.3),)


def test_without_a_choice_the_numbers_given_are_taken_and_no_grid_is_reported():
    (row,) = rows_of(
        parse_readings((CACHE.replace("0.5/1/2", "1").replace("0.1/0.3", "0.2"),)), INPUTS, False
    )
    policy = Fixed(row, row.grids([1.0]))
    assert policy.points == (Point(8, 1.0, 0.2),) and policy.describe_grid(tokens=4) is None
    assert policy.curve == [Point(8, 1.0, 0.2), Point(16, 1.0, 0.2)]
    assert Fixed(row, row.grids([1.0]), with_curve=False).curve == []


def test_the_tuning_split_says_what_every_number_of_entries_is_worth(policy):
    sums = even(policy, 20.0)
    sums[2, 1, 0], sums[0, 0, 1] = 10.0, 12.0
    found = tuned_row(after(policy, sums), tokens=4)
    curve = [(8, exp(3.0)), (16, exp(2.5))]
    assert (found["perplexity"], found["over"], found["curve"]) == (exp(2.5), "size", curve)
    assert (found["weights"], found["lowest"], found["off"]) == (["lambda"], [True], [False])
    sums[2, 1, 1] = 9.0
    assert tuned_row(after(policy, sums), tokens=4)["lowest"] == [False]


@pytest.fixture
def tuned() -> Grid:
    """A cache whose λ is one of the default grid."""
    return opened(
        f"long:size=8/16,theta=0.5/1/2,lambda={'/'.join(map(str, LAMBDAS))},similarity=dot,key=hidden"
    )


def test_memory_that_makes_every_sum_worse_is_switched_off_and_its_scale_is_not_reported(tuned):
    (grid,) = tuned.grids
    assert grid.tried == (*LAMBDAS, 0.0) and grid.weights == LAMBDAS
    sums = even(tuned, 20.0) + np.arange(grid.shape[2])
    sums[:, :, -1] = 19.0
    policy = after(tuned, sums)
    assert policy.points == (Point(8, 0.5, 0.0),)
    assert policy.curve == [Point(8, 0.5, 0.0), Point(16, 0.5, 0.0)]
    (memory,) = policy.describe("valid")
    assert (memory["size"], memory["theta"], memory["lambda"], memory["interior"]) == (
        8,
        None,
        0.0,
        {},
    )
    assert [point["lambda"] for point in policy.describe_points(policy.curve)] == [0.0, 0.0]
    shown = policy.describe_grid(tokens=2)
    assert shown["weights"] == [0.0, *LAMBDAS], "rising"
    assert [line[:2] for line in shown["nll"]] == [[9.5, 10.0]] * 3
    assert tuned_row(policy, tokens=2)["off"] == [True]


def test_where_memory_helps_a_report_holds_no_weight_at_which_it_is_off(tuned):
    """Also that memory of one size alone would be worse than none: its curve shows what it is worth
    there.
    """
    sums = even(tuned, 20.0)
    sums[1, 1, 3], sums[2, 0, 4], sums[:, :, -1] = 10.0, 19.5, 19.0
    policy = after(tuned, sums)
    assert policy.points == (Point(16, 1.0, LAMBDAS[3]),)
    assert policy.curve == [Point(8, 2.0, LAMBDAS[4]), Point(16, 1.0, LAMBDAS[3])]
    shown = policy.describe_grid(tokens=1)
    assert shown["weights"] == list(LAMBDAS) and all(
        len(line) == len(LAMBDAS) for line in shown["nll"]
    )
    one = tuned_row(policy, tokens=1)
    assert (one["off"], one["lowest"]) == ([False], [False])
    sums[1, 1, 0] = 9.0
    policy = after(tuned, sums)
    assert tuned_row(policy, tokens=1)["lowest"] == [True]  # the smallest with which it is read
    assert interior(policy.grids, policy.best, policy.allowed)[0]["weight"] is False


def test_memory_that_is_no_better_than_none_stays(tuned):
    assert after(tuned, even(tuned, 1.0)).points == (Point(8, 0.5, LAMBDAS[0]),)


def test_a_list_of_weights_is_all_that_is_tried(policy):
    assert policy.grids[0].tried == (0.1, 0.3)


@pytest.mark.parametrize("together", [10_000, 1])
def test_of_several_memories_the_best_sum_is_kept_however_it_was_found(together, monkeypatch):
    limit(monkeypatch, points_together=together)
    policy = opened(CACHE, CACHE)
    best = (Point(8, 0.5, 0.3), Point(16, 2.0, 0.1))
    monkeypatch.setattr(module, "coordinate_descent", lambda *_: (best, [8.0, 3.0]))
    sums = even(policy, 20.0)
    sums[0, 0, 1, 2, 1, 0] = 3.0
    policy = after(policy, sums)
    assert policy.chosen.best_nll == 3.0
    one = tuned_row(policy, tokens=3)
    assert (one["perplexity"], one["curve"], one["lowest"]) == (exp(1.0), [], [False, True])
