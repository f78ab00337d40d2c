import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from stages import threads
from stages.threads import in_turn, thread_pool


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_threads", lambda controller: 3)


def pools() -> list[int]:
    return [torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())]


@pytest.mark.usefixtures("three_threads")
def test_every_item_is_worked_on_once_by_several_threads() -> None:
    done, here, meeting = [], set(), threading.Barrier(3, timeout=30)

    def work(item: int) -> None:
        if item < 3:
            meeting.wait()
        done.append(item)
        here.add(threading.get_ident())

    with thread_pool() as share:
        share(work, range(100))
    assert sorted(done) == list(range(100))
    assert len(here) == 3


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("small", [False, True])
def test_libraries_compute_alone_inside_and_as_before_outside(small: bool) -> None:
    at_first = torch.get_num_threads()
    torch.set_num_threads(2)
    before, inside = pools(), set[int]()

    def work(item: int) -> None:
        torch.ones(8, 8) @ torch.ones(8, 8)
        np.ones((8, 8)) @ np.ones((8, 8))
        inside.update(pools())

    with thread_pool(small) as share:
        share(work, range(6))
        inside.update(pools())
    after = pools()
    torch.set_num_threads(at_first)
    assert inside == {1}
    assert after == before


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_what_goes_wrong_in_any_thread_is_raised_and_ends_the_work(failing: int) -> None:
    before, done = pools(), []
    meeting, failed = threading.Barrier(3, timeout=30), threading.Event()

    def work(item: int) -> None:
        if item < 3:
            meeting.wait()
        if item == failing:
            failed.set()
            raise ValueError("one of three")
        assert failed.wait(30)
        time.sleep(0.01)
        done.append(item)

    with pytest.raises(ValueError, match="one of three"), thread_pool() as share:
        share(work, range(1000))
    assert len(done) < 100
    assert pools() == before


def test_small_work_stays_in_the_calling_thread() -> None:
    with thread_pool(small=True) as share:
        assert share is in_turn
    found: list[Any] = []
    in_turn(lambda item: found.append((item, threading.current_thread())), "ab")
    assert found == [("a", threading.main_thread()), ("b", threading.main_thread())]
