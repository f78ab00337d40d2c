"""One pool of threads at a time.

torch, FAISS and NumPy bring a pool each. Where their calls alternate, idle threads of one spin while another works,
unless OMP_WAIT_POLICY=PASSIVE stood in the environment before they were loaded; on two cores that takes 3 to 9 times as
long. Work that calls several of them is shared out among threads of Python's, in which every library computes alone.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")


class ThreadPool:
    """Calls a function with many items, on `threads` threads; without a `pool` of them here, one after the other."""

    def __init__(self, threads: int = 1, pool: ThreadPoolExecutor | None = None) -> None:
        self.threads, self._pool = threads, pool

    def __call__(self, work: Callable[[T], object], items: Iterable[T]) -> None:
        """Call it with every item, in any order and several at a time. Raises: what one of the calls raised."""
        waiting = deque(items)

        def work_off() -> None:
            while waiting:
                try:
                    item = waiting.popleft()
                except IndexError:
                    return
                try:
                    work(item)
                except BaseException:
                    waiting.clear()
                    raise

        if self._pool is None:
            return work_off()
        calls = [self._pool.submit(work_off) for _ in range(min(self.threads, len(waiting)))]
        try:
            for call in calls:
                call.result()
        finally:
            waiting.clear()
            wait(calls)


in_turn = ThreadPool()


def slices(stop: int, step: int, start: int = 0) -> list[slice]:
    """Cut [start, stop) into slices of at most `step`.

    >>> slices(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(first, min(first + step, stop)) for first in range(start, stop, step)]


_one_pool = Lock()


@contextmanager
def thread_pool(small: bool = False) -> Iterator[ThreadPool]:
    """A pool of as many threads as the libraries would use: cores, or what OMP_NUM_THREADS says.

    Another thread that asks for the same waits, so no call may lie within another.

    Args:
        small: the work is not worth other threads.
    """
    with _one_pool:
        controller = ThreadpoolController()
        count = _threads(controller)
        with _torch_alone(), controller.limit(limits=1):  # torch answers 1 once OpenMP is limited
            if small or count == 1:
                yield in_turn
                return
            # OpenMP keeps its number of threads for each thread that asks, and those of Python begin with the default
            alone = partial(controller.limit, limits=1, user_api="openmp")
            with ThreadPoolExecutor(count, initializer=alone) as pool:
                yield ThreadPool(count, pool)


def _threads(controller: ThreadpoolController) -> int:
    return max((pool["num_threads"] for pool in controller.info()), default=1)


@contextmanager
def _torch_alone() -> Iterator[None]:
    """torch, if it is loaded, computes with one thread, here and in threads that begin now."""
    torch: Any = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    if before is not None and before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before is not None and before > 1:
            torch.set_num_threads(before)
