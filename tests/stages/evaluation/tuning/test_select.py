"""What is chosen of a row's grid, as it is recorded and as a report holds it."""

import json
from math import exp
from pathlib import Path

import numpy as np
import pytest

from stages.evaluation.tuning import select as module
from stages.evaluation.tuning.coordinate_descent import DescentResult
from stages.evaluation.tuning.select import Choice, choose, describe_grid, select, tuned_row
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
    assert found == (exp(2.5), "size", [(8, exp(3.0)), (16, exp(2.5))], ["lambda"], [True])
    sums[2, 1, 1] = 9.0
    assert tuned_row(row, grids, choose(row, grids, saved(tmp_path, sums)), tokens=4).lowest == [False]
    before = Choice([2, 1, 0], [[0, 0, 1], [2, 1, 0]], None)
    assert tuned_row(row, grids, before, tokens=4) == (None, "size", [], ["lambda"], [True])


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
