"""What is chosen of a row's grid, as it is recorded and as a report holds it."""

import json
from math import exp
from pathlib import Path

import numpy as np
import pytest

from stages.evaluation.tuning import select as module
from stages.evaluation.tuning.coordinate_descent import DescentResult
from stages.evaluation.tuning.select import (
    Choice,
    choose,
    describe_by_cutoff,
    describe_grid,
    describe_row,
    select,
    tuned_row,
)
from stages.memory.readers.interpolate.settings import GRID as LAMBDAS
from stages.retrieval.grids import Best, Point
from stages.retrieval.reading import parse_readings
from stages.retrieval.rows import MemoryRow, rows_of
from stages.retrieval.sources.source import SourceInputs

CACHE = "long:size=8/16,theta=0.5/1/2,lambda=0.1/0.3,similarity=dot,key=hidden"
INPUTS = SourceInputs(8, False, "cpu", None)


@pytest.fixture
def row() -> MemoryRow:
    return rows_of(parse_readings((CACHE,)), INPUTS, False)[0]


def saved(folder: Path, *sums: np.ndarray) -> list[Path]:
    files = [folder / f"{number}.npy" for number in range(len(sums))]
    for file, one in zip(files, sums, strict=True):
        np.save(file, one)
    return files


def test_the_best_of_the_sums_of_all_parts_is_chosen_and_comes_back_from_its_record(row, tmp_path):
    grids = row.grids([1.0])
    first, second = np.full((2, *grids[0].shape), 10.0)
    first[2, 1, 0], second[0, 1, 1], first[1, 0, 1] = 0.0, 4.0, np.nan
    first[0, 0, 1] = second[0, 0, 1] = 6.0
    recorded = json.loads(json.dumps(choose(row, grids, saved(tmp_path, first, second))._asdict(), allow_nan=False))
    selected = select(row, grids, Choice(**recorded))
    assert selected.settings.points == (Point(16, 2.0, 0.1),)
    assert selected.best.interior == ({"scale": False},)
    assert selected.settings.by_cutoff == [Point(8, 0.5, 0.3), Point(16, 2.0, 0.1)]
    grid = describe_grid(row, selected, tokens=4)
    assert grid["nll"] == [[5.0, 3.5], [5.0, 5.0], [2.5, 5.0]]
    assert (grid["at"], grid["tokens"], grid["scales"], grid["weights"]) == (16, 4, [0.5, 1.0, 2.0], [0.1, 0.3])


def test_sums_that_are_no_numbers_are_never_chosen_and_recorded_as_none(row, tmp_path):
    grids = row.grids([1.0])
    sums = np.full(grids[0].shape, np.nan)
    sums[1] = np.inf
    sums[2, 1, 1] = 1.0
    choice = choose(row, grids, saved(tmp_path, sums))
    assert choice.nll == [[None, None], [None, None], [None, 1.0]]
    assert select(row, grids, choice).settings.points == (Point(16, 2.0, 0.3),)


def test_without_a_choice_the_numbers_given_are_taken_and_no_grid_is_told():
    (row,) = rows_of(parse_readings((CACHE.replace("0.5/1/2", "1").replace("0.1/0.3", "0.2"),)), INPUTS, False)
    selected = select(row, row.grids([1.0]))
    assert selected.settings.points == (Point(8, 1.0, 0.2),)
    assert selected.nll is None and describe_grid(row, selected, tokens=4) is None


def test_the_tuning_split_says_what_every_number_of_entries_is_worth(row, tmp_path):
    grids = row.grids([1.0])
    sums = np.full(grids[0].shape, 20.0)
    sums[2, 1, 0], sums[0, 0, 1] = 10.0, 12.0
    found = tuned_row(row, grids, choose(row, grids, saved(tmp_path, sums)), tokens=4)
    assert found == (exp(2.5), "size", [(8, exp(3.0)), (16, exp(2.5))], ["lambda"], [True], [False])
    sums[2, 1, 1] = 9.0
    assert tuned_row(row, grids, choose(row, grids, saved(tmp_path, sums)), tokens=4).lowest == [False]
    before = Choice([2, 1, 0], [[0, 0, 1], [2, 1, 0]], None)
    assert tuned_row(row, grids, before, tokens=4) == (None, "size", [], ["lambda"], [True], [False])


@pytest.fixture
def tuned() -> MemoryRow:
    """A cache whose λ is one of the default grid."""
    settings = f"size=8/16,theta=0.5/1/2,lambda={'/'.join(map(str, LAMBDAS))},similarity=dot,key=hidden"
    return rows_of(parse_readings((f"long:{settings}",)), INPUTS, False)[0]


def test_memory_that_makes_every_sum_worse_is_switched_off_and_scales_are_not_told(tuned, tmp_path):
    (grid,) = grids = tuned.grids([1.0])
    assert grid.tried == (*LAMBDAS, 0.0) and grid.weights == LAMBDAS
    sums = np.full(grid.shape, 20.0) + np.arange(grid.shape[2])
    sums[:, :, -1] = 19.0
    choice = choose(tuned, grids, saved(tmp_path, sums))
    selected = select(tuned, grids, choice)
    assert selected.settings.points == (Point(8, 0.5, 0.0),)
    assert selected.settings.by_cutoff == [Point(8, 0.5, 0.0), Point(16, 0.5, 0.0)]
    (memory,) = describe_row(tuned, selected, "valid")
    assert (memory["size"], memory["theta"], memory["lambda"], memory["interior"]) == (8, None, 0.0, {})
    assert [point["lambda"] for point in describe_by_cutoff(tuned, selected)] == [0.0, 0.0]
    shown = describe_grid(tuned, selected, tokens=2)
    assert shown["weights"] == [0.0, *LAMBDAS], "rising"
    assert [line[:2] for line in shown["nll"]] == [[9.5, 10.0]] * 3
    assert tuned_row(tuned, grids, choice, tokens=2).off == [True]


def test_where_memory_helps_a_report_holds_what_it_did_before_it_was_tried_without(tuned, tmp_path):
    """Also that memory of one size alone would be worse than none: its curve shows what it is worth there."""
    (grid,) = grids = tuned.grids([1.0])
    sums = np.full(grid.shape, 20.0)
    sums[1, 1, 3], sums[2, 0, 4], sums[:, :, -1] = 10.0, 19.5, 19.0
    choice = choose(tuned, grids, saved(tmp_path, sums))
    selected = select(tuned, grids, choice)
    assert selected.settings.points == (Point(16, 1.0, LAMBDAS[3]),)
    assert selected.settings.by_cutoff == [Point(8, 2.0, LAMBDAS[4]), Point(16, 1.0, LAMBDAS[3])]
    shown = describe_grid(tuned, selected, tokens=1)
    assert shown["weights"] == list(LAMBDAS) and all(len(line) == len(LAMBDAS) for line in shown["nll"])
    one = tuned_row(tuned, grids, choice, tokens=1)
    assert (one.off, one.lowest) == ([False], [False])
    sums[1, 1, 0] = 9.0
    choice = choose(tuned, grids, saved(tmp_path, sums))
    assert tuned_row(tuned, grids, choice, tokens=1).lowest == [True], "the smallest with which it is read"
    assert select(tuned, grids, choice).best.interior[0]["weight"] is False


def test_what_is_no_better_than_none_stays_and_a_draft_of_before_is_chosen_from_as_it_was(tuned, tmp_path):
    grids = tuned.grids([1.0])
    even = saved(tmp_path, np.ones(grids[0].shape))
    assert select(tuned, grids, choose(tuned, grids, even)).settings.points == (Point(8, 0.5, LAMBDAS[0]),)
    before = saved(tmp_path, np.ones(grids[0].shape), np.ones((3, 2, len(LAMBDAS))))
    assert select(tuned, grids, choose(tuned, grids, before)).settings.points == (Point(8, 0.5, LAMBDAS[0]),)


def test_a_list_of_weights_is_all_that_is_tried(row):
    (grid,) = row.grids([1.0])
    assert grid.tried == (0.1, 0.3)


@pytest.mark.parametrize("together", [10_000, 1])
def test_of_several_memories_the_best_sum_is_kept_however_it_was_found(together, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TRIED_TOGETHER", together)
    row, *_ = rows_of(parse_readings((CACHE, CACHE)), INPUTS, False)
    grids = row.grids([1.0, 1.0])
    found = Best((), (), (0, 0, 1, 2, 1, 0))
    monkeypatch.setattr(module, "coordinate_descent", lambda *_: DescentResult(found, [8.0, 3.0]))
    sums = np.full([n for grid in grids for n in grid.shape], 20.0)
    sums[0, 0, 1, 2, 1, 0] = 3.0
    kept = choose(row, grids, saved(tmp_path, sums))
    assert kept.best_nll == 3.0
    one = tuned_row(row, grids, kept, tokens=3)
    assert (one.perplexity, one.curve, one.lowest) == (exp(1.0), [], [False, True])
