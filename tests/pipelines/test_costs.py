"""Whether what tasks need fits on the disk."""

from pipelines.costs import CONTINUES, DONE, NEW, Estimate, room


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
