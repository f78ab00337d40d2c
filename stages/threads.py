"""One pool of threads at a time.

torch, FAISS and NumPy each have their own pool. If their calls alternate, idle threads of one spin
while another works:
on two cores this takes 3 to 9 times as long. Only OMP_WAIT_POLICY=PASSIVE, set before they are
loaded, prevents it. So work that calls several of them is divided among Python threads. Within
each, every library uses one thread.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")


class ThreadPool:
    """Calls a function with many items on the `threads` threads of `pool`; without a pool, one
    after the other.
    """

    def __init__(self, threads: int = 1, pool: ThreadPoolExecutor | None = None) -> None:
        self.threads = threads
        self._pool = pool

    def __call__(self, work: Callable[[T], object], items: Iterable[T]) -> None:
        """Call `work` with every item, in any order and several at a time. Raises: the error of one
        of the calls.
        """
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
WITH_THREADS = ("numpy", "torch", "faiss", "scipy", "sklearn")
"""Packages whose libraries have thread pools."""


@contextmanager
def thread_pool(small: bool = False) -> Iterator[ThreadPool]:
    """A pool with the libraries' number of threads: the cores, or OMP_NUM_THREADS.

    A second thread that calls this waits, so calls must not be nested.

    Args:
        small: whether the work is too small for several threads.
    """
    with _one_pool:
        controller = _controller(tuple(name in sys.modules for name in WITH_THREADS))
        count = _threads(controller)
        with _torch_alone(), controller.limit(limits=1):  # torch answers 1 once OpenMP is limited
            if small or count == 1:
                yield in_turn
                return
            # OpenMP has a number of threads per calling thread, and new Python threads begin with
            # the default
            alone = partial(controller.limit, limits=1, user_api="openmp")
            with ThreadPoolExecutor(count, initializer=alone) as pool:
                yield ThreadPool(count, pool)


@lru_cache
def _controller(loaded: tuple[bool, ...]) -> ThreadpoolController:
    """The thread pools of libraries. Finding them takes 4 ms, as long as a search for a token.

    Args:
        loaded: which packages of WITH_THREADS are loaded; others may bring pools later.
    """
    return ThreadpoolController()


def _threads(controller: ThreadpoolController) -> int:
    return max((pool["num_threads"] for pool in controller.info()), default=1)


@contextmanager
def _torch_alone() -> Iterator[None]:
    """Limit torch, if it is loaded, to one thread, here and in threads that start inside the block."""
    torch: Any = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    if before is not None and before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before is not None and before > 1:
            torch.set_num_threads(before)
