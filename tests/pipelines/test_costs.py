"""Whether what tasks need fits on the disk, and how long they take."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.costs import CONTINUES, DONE, NEW, RANGE, SHORT_RANGE, Estimate, Run, _seconds, room
from stages.artifacts.cost import Effort


def estimate(state: str, disk: int, scratch: int, written: int = 0) -> Estimate:
    return Estimate("a", "train", state, None, disk=disk, scratch=scratch, written=written)


def test_work_that_continues_needs_what_its_draft_does_not_hold() -> None:
    found = [estimate(DONE, 10**6, 0), estimate(CONTINUES, 100, 50, written=120), estimate(NEW, 10, 5)]
    assert (room(found, 31, {}).stays, room(found, 31, {}).at_once) == (10, 30)
    assert room(found, 31, {}).problems == ()
    more = [estimate(CONTINUES, 100, 50, written=40)]
    assert (room(more, 100, {}).stays, room(more, 100, {}).at_once) == (60, 110)
    assert room(more, 100, {}).problems
    assert room([estimate(CONTINUES, 100, 50, written=400)], 100, {}).at_once == 0


def ran(tokens: int, seconds: float, fixed: float = 0.0) -> Run:
    artifact: Any = SimpleNamespace()
    return Run(artifact, Effort(tokens, "tokens", {}), seconds, fixed)


@pytest.mark.parametrize(
    "before, tokens, rate, around, short",
    [
        ([ran(1000, 10.0)], 100_000, 0.01, SHORT_RANGE, True),
        ([ran(1000, 10.0)], 2000, 0.01, RANGE, False),
        ([ran(1000, 10.0), ran(50_000, 100.0)], 100_000, 0.002, RANGE, False),
        ([ran(1000, 10.0), ran(50_000, 100.0)], 1500, 0.006, RANGE, False),
    ],
    ids=["start alone", "as short", "a longer one there", "both tell"],
)
def test_a_run_of_seconds_says_little_of_a_longer_one(
    before: list[Run], tokens: int, rate: float, around: tuple[float, float], short: bool
) -> None:
    found, told = _seconds(Effort(tokens, "tokens", {}), before)
    assert found == pytest.approx(tuple(factor * rate * tokens for factor in around))
    assert told is short


def test_what_is_done_once_a_run_is_not_multiplied() -> None:
    """16 of 24 s were to start: 9 times the tokens take 16 s and 9 times the 8."""
    found, _ = _seconds(Effort(9000, "tokens", {}), [ran(1000, 24.0, fixed=16.0)])
    assert found == pytest.approx(tuple(factor * 88.0 for factor in SHORT_RANGE))
    long, short = _seconds(Effort(9000, "tokens", {}), [ran(1000, 60.0, fixed=16.0)])
    assert long == pytest.approx(tuple(factor * (16 + 9 * 44) for factor in RANGE)) and not short
