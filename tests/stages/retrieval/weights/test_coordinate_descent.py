"""Tuning readings in turn, against all points of the product of their grids."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.entries import LogSums
from stages.memory.readers.reader import Interpolate, Joint
from stages.retrieval.grids import GridIndex, Point, ReadingGrid, interior
from stages.retrieval.weights import grid as module
from stages.retrieval.weights.grid import (
    TuningSums,
    arrays_of,
    coordinate_descent,
    sums_bytes,
    sums_of,
)

WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.6)
FIRST = ReadingGrid(Interpolate(), scales=(0.5, 1.0, 2.0), cutoffs=(1, 2), weights=WEIGHTS)
SECOND = ReadingGrid(Interpolate(), scales=(0.0, 1.0), cutoffs=(4, 8, 16), weights=WEIGHTS)
JOINT = ReadingGrid(Joint(), scales=(0.0, 1.0), cutoffs=(4,), weights=(-1.0, 0.0, 2.0))


def every_cutoff(grids: Sequence[ReadingGrid]) -> list[tuple[int, ...]]:
    return [grid.cutoffs for grid in grids]


def random_parts(seed: int, grids: Sequence[ReadingGrid], sizes: Sequence[int]) -> list[TuningSums]:
    """Parts of `sizes` tokens, with targets that memories lack, and positions with nothing to read."""
    random = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=random)

    parts = []
    for n in sizes:
        log_sums = []
        for grid in grids:
            shape = (*grid.shape[:2], n)
            total = numbers(*shape) * 2
            target = total + numbers(*shape).clamp(min=0.01).log() * 3
            target[:, :, numbers(n) < 0.4] = -torch.inf
            empty = numbers(n) < 0.1
            target[:, :, empty], total[:, :, empty] = -torch.inf, -torch.inf
            log_sums.append(LogSums(target, total, numbers(*shape)))
        log_p = numbers(n).clamp(min=0.01).log() * 4
        parts.append((log_p, 1 + numbers(n), log_sums))
    return parts


def slow_nll(
    parts: Sequence[TuningSums], grids: Sequence[ReadingGrid], points: Sequence[Point]
) -> float:
    """Summed nats at one point of each reading."""
    total = 0.0
    for log_p, log_z, log_sums in parts:
        for number, (grid, one) in enumerate(zip(grids, log_sums, strict=True)):
            scale, cutoff, _ = grid.index_of(points[number])
            log_p = grid.reader.read(log_p, log_z, one.at(scale, cutoff), points[number].weight)
        total -= float(log_p.double().sum())
    return total


def exhaustive(parts: Sequence[TuningSums], grids: Sequence[ReadingGrid]) -> float:
    """The least of `slow_nll` at all points."""
    totals = torch.zeros(
        math.prod(size for grid in grids for size in grid.shape), dtype=torch.float64
    )
    for log_p, log_z, log_sums in parts:
        read = [log_p]
        for grid, one in zip(grids, log_sums, strict=True):
            read = [
                grid.reader.read(before, log_z, one.at(scale, cutoff), grid.weights[weight])
                for before in read
                for scale, cutoff, weight in np.ndindex(*grid.shape)
            ]
        totals -= torch.stack(read).double().sum(1)
    return float(totals.min())


@given(st.integers(0, 10_000), st.sampled_from([(FIRST, SECOND), (JOINT, SECOND)]))
@settings(deadline=None, max_examples=12, derandomize=True)
def test_the_end_is_about_as_good_as_the_best_of_all_points(
    seed: int, grids: tuple[ReadingGrid, ...]
) -> None:
    parts = random_parts(seed, grids, [40, 7])
    best, nll = coordinate_descent(lambda: parts, grids, every_cutoff(grids))
    assert nll[-1] == pytest.approx(slow_nll(parts, grids, best), rel=1e-5)
    assert nll == sorted(nll, reverse=True)
    assert nll[-1] <= exhaustive(parts, grids) * 1.1


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=8)
def test_no_change_of_one_reading_makes_the_end_better(seed: int) -> None:
    grids = (replace(FIRST, cutoffs=(1,)), replace(SECOND, cutoffs=(4,)))
    parts = random_parts(seed, grids, [30])
    best, nll = coordinate_descent(lambda: parts, grids, every_cutoff(grids))
    for number, grid in enumerate(grids):
        for place in np.ndindex(*grid.shape):
            moved = [*best]
            moved[number] = grid.point_at(GridIndex(*place))
            assert slow_nll(parts, grids, moved) >= nll[-1] * (1 - 1e-6)


def test_one_reading_gets_the_best_of_its_points() -> None:
    parts = random_parts(5, [SECOND], [50])
    _, nll = coordinate_descent(lambda: parts, [SECOND], [SECOND.cutoffs])
    assert nll == [pytest.approx(exhaustive(parts, [SECOND]), rel=1e-6)]


def masses_of(probabilities: Sequence[float]) -> LogSums:
    """LogSums [1, 1, n] that give the targets these probabilities."""
    log_p = torch.tensor(probabilities).log()[None, None]
    return LogSums(log_p, torch.zeros_like(log_p), torch.zeros_like(log_p))


def test_a_case_by_hand() -> None:
    """Two tokens; the first memory knows one of them, the second both.

    Alone the first memory gets weight 0.5: 0.505 x 0.125 is more than 0.01 x 0.25 and 0.901 x
    0.025.
    The second gets 0.9. Now that it stands in for the token that the first lacks, the first gets
    0.9.
    """
    grid = ReadingGrid(Interpolate(), (1.0,), (1,), (0.0, 0.5, 0.9))
    log_sums = [masses_of([1.0, 0.0]), masses_of([1.0, 1.0])]
    parts = [(torch.tensor([0.01, 0.25]).log(), torch.zeros(2), log_sums)]
    best, nll = coordinate_descent(lambda: parts, [grid, grid], [(1,), (1,)])
    assert best == (Point(1, 1.0, 0.9),) * 2
    assert interior([grid, grid], best, [(1,), (1,)]) == [{"weight": False}] * 2
    start, end = (
        (0.1 * 0.505 + 0.9) * (0.1 * 0.125 + 0.9),
        (0.1 * 0.901 + 0.9) * (0.1 * 0.025 + 0.9),
    )
    assert nll == pytest.approx([-math.log(start), -math.log(end)], rel=1e-6)


def test_of_equals_the_first_is_taken() -> None:
    nothing = LogSums(
        torch.full((2, 1, 3), -torch.inf), torch.full((2, 1, 3), -torch.inf), torch.zeros(2, 1, 3)
    )
    grid = ReadingGrid(Interpolate(), (1.0, 2.0), (1,), (0.2, 0.4))
    parts = [(torch.zeros(3), torch.zeros(3), [nothing, nothing])]
    best, nll = coordinate_descent(lambda: parts, [grid, grid], [(1,), (1,)])
    assert best == (Point(1, 1.0, 0.2),) * 2 and nll == [0.0]


def test_cutoffs_that_may_not_be_chosen_are_not() -> None:
    parts = random_parts(3, [FIRST, SECOND], [40])
    best, _ = coordinate_descent(lambda: parts, [FIRST, SECOND], [(2,), (8,)])
    assert [point.cutoff for point in best] == [2, 8]


def test_how_tokens_are_cut_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    grids = (FIRST, SECOND)
    (whole,) = random_parts(11, grids, [60])
    log_p, log_z, log_sums = whole
    cut = [
        (
            log_p[part],
            log_z[part],
            [LogSums(*(a[..., part] for a in (m.target, m.total, m.max_score))) for m in log_sums],
        )
        for part in (slice(0, 37), slice(37, 60))
    ]
    best, nll = coordinate_descent(lambda: [whole], grids, every_cutoff(grids))
    monkeypatch.setattr(module, "CHUNK_TOKENS", 7)
    other, other_nll = coordinate_descent(lambda: cut, grids, every_cutoff(grids))
    assert other == best
    assert other_nll == pytest.approx(nll, rel=1e-6)


def test_a_part_comes_back_from_its_arrays_as_it_was() -> None:
    ((log_p, log_z, log_sums),) = random_parts(1, [FIRST, SECOND], [5])
    arrays = arrays_of((log_p, log_z, log_sums))
    assert sum(array.nbytes for array in arrays.values()) == sums_bytes([FIRST, SECOND], 5)
    found_p, found_z, found = sums_of(arrays)
    assert torch.equal(found_p, log_p) and torch.equal(found_z, log_z)
    for one, other in zip(found, log_sums, strict=True):
        for name in ("target", "total", "max_score"):
            assert torch.equal(getattr(one, name), getattr(other, name))
