"""Whether what tasks need fits."""

import pytest

from pipelines.estimates import CONTINUES, DONE, NEW, Estimate, fits


def estimate(state: str, disk: int, scratch: int, written: int = 0) -> Estimate:
    return Estimate("a", "train", state, None, disk=disk, scratch=scratch, written=written)


def test_work_that_continues_needs_what_its_draft_does_not_hold() -> None:
    found = [
        estimate(DONE, 10**6, 0),
        estimate(CONTINUES, 100, 50, written=120),
        estimate(NEW, 10, 5),
    ]
    assert (fits(found, 31, {}).stays, fits(found, 31, {}).at_once) == (10, 30)
    assert fits(found, 31, {}).problems == ()
    more = [estimate(CONTINUES, 100, 50, written=40)]
    assert (fits(more, 100, {}).stays, fits(more, 100, {}).at_once) == (60, 110)
    assert fits(more, 100, {}).problems
    assert fits([estimate(CONTINUES, 100, 50, written=400)], 100, {}).at_once == 0


@pytest.mark.parametrize("device, memory", [("cpu", {"cpu": 9}), ("gpu", {"cpu": 100, "gpu": 9})])
def test_memory_that_cannot_suffice_is_a_problem_of_its_device(
    device: str, memory: dict[str, int]
) -> None:
    found = Estimate(
        "a", "train", NEW, None, disk=0, scratch=0, memory=dict.fromkeys(("cpu", device), 10)
    )
    (problem,) = fits([found], 100, memory).problems
    assert f"{device} has 9" in problem
    assert not fits([found], 100, dict.fromkeys(memory, 10)).problems
