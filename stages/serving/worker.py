"""The one thread that works on the model, step by step, for several tasks in turn."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stages.serving.refusal import Refusal
from stages.serving.settings import MAX_ACTIVE, MAX_WAITING


@dataclass(frozen=True)
class Ended:
    """The end of a task, and the error that ended it."""

    error: BaseException | None = None


@dataclass(eq=False)
class Task:
    """Work that is done in steps; results, then an `Ended`, are delivered in the worker's thread."""

    steps: Iterator[Any]
    deliver: Callable[[Any], None]
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """End the task before its next step."""
        self.cancelled.set()

    def step(self) -> bool:
        """Do one step, and deliver its result unless it is None; returns whether more remain."""
        if self.cancelled.is_set():
            self.close()
            return False
        try:
            result = next(self.steps)
        except StopIteration:
            self.deliver(Ended())
            return False
        except BaseException as error:
            self.deliver(Ended(error))
            return False
        if result is not None:
            self.deliver(result)
        return True

    def close(self) -> None:
        """Give up the rest of the work."""
        close = getattr(self.steps, "close", None)
        if close is not None:
            close()
        self.deliver(Ended())


class Worker:
    """Does a step of each active task in turn, so that a short one does not wait for a long one.

    All tasks run in one thread: the model, its caches and its memories are never used by two.
    """

    def __init__(self, max_waiting: int = MAX_WAITING, max_active: int = MAX_ACTIVE) -> None:
        self._max_waiting, self._max_active = max_waiting, max_active
        self._waiting: deque[Task] = deque()
        self._active: deque[Task] = deque()
        self._condition = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="memlm-model", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Tasks that wait for their first step."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Tasks under way."""
        return len(self._active)

    @property
    def alive(self) -> bool:
        """Whether tasks are accepted and done."""
        return self._thread.is_alive() and not self._closed

    def submit(self, steps: Iterator[Any], deliver: Callable[[Any], None]) -> Task:
        """Add a task. Raises: Refusal if too many wait already, or the worker is closed."""
        task = Task(steps, deliver)
        with self._condition:
            if self._closed:
                raise Refusal(503, "The server is shutting down.", code="shutting_down")
            self._waiting = deque(one for one in self._waiting if not one.cancelled.is_set())
            if len(self._waiting) >= self._max_waiting:
                raise Refusal(
                    429,
                    f"{len(self._waiting)} requests are waiting already; try again later.",
                    code="queue_full",
                    headers={"Retry-After": "5"},
                )
            self._waiting.append(task)
            self._condition.notify()
        return task

    def close(self) -> None:
        """Cancel all tasks, and wait for the step under way."""
        with self._condition:
            self._closed = True
            for task in (*self._waiting, *self._active):
                task.cancel()
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._await_work():
            task = self._active[0]
            more = task.step()
            with self._condition:
                self._active.popleft()
                if more:
                    self._active.append(task)

    def _await_work(self) -> bool:
        """Wait until a task is active; False: the worker is closed, and no task is left."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._active or self._closed)
            while self._waiting and len(self._active) < self._max_active:
                self._active.append(self._waiting.popleft())
            return bool(self._active)
