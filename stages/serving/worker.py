"""The one thread that works on the model: steps of several tasks in turn, and joint questions.

A task has strands, such as the choices of a request. Each is a generator, and a step of it ends
with what it yields: a result, None, or an `Ask`. Questions of one round are answered in one call.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stages.serving.refusal import Refusal
from stages.serving.settings import MAX_ACTIVE, MAX_ROWS, MAX_WAITING

Steps = Generator[Any, Any, None]


@dataclass(frozen=True)
class Ask:
    """A question of a strand; its answer is sent into the generator.

    `about`: questions about the same are answered together.
    """

    about: Hashable
    item: Any


Answer = Callable[[Any, list[Any]], Sequence[Any]]
"""Answers the items of questions about the same, in their order."""


@dataclass(frozen=True)
class Ended:
    """The end of a task, and the error that ended it."""

    error: BaseException | None = None


@dataclass(eq=False)
class Strand:
    """A generator, the question that it waits with, and the answer to be sent."""

    steps: Steps
    ask: Ask | None = None
    answer: Any = None
    error: BaseException | None = None

    def step(self) -> Any:
        """Go on to what is yielded next. Raises: StopIteration at the end, or any error."""
        answer = self.answer
        error = self.error
        # The generator gets an answer once.
        self.ask = None
        self.answer = None
        self.error = None
        result = self.steps.send(answer) if error is None else self.steps.throw(error)
        if isinstance(result, Ask):
            self.ask = result
            return None
        return result


@dataclass(eq=False)
class Task:
    """Strands, some of which are under way; what they yield is delivered in the worker's thread.

    An `Ended` comes last; a task that is cancelled before its first step may get none. One error
    ends all strands.
    """

    waiting: deque[Steps]
    deliver: Callable[[Any], None]
    strands: list[Strand] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """End the task before its next step."""
        self.cancelled.set()

    def step(self, max_strands: int) -> bool:
        """Do a step of each strand under way, up to `max_strands`; returns whether the task goes on.

        Waiting strands take the places of those that have ended. An error of a strand goes to
        `deliver`, and not to the caller: the worker has other tasks.
        """
        if self.cancelled.is_set():
            self.end(None)
            return False

        while self.waiting and len(self.strands) < max_strands:
            self.strands.append(Strand(self.waiting.popleft()))
        try:
            self.strands = [strand for strand in self.strands if self._step(strand)]
        except BaseException as error:
            self.end(error)
            return False

        goes_on = bool(self.waiting or self.strands)
        if not goes_on:
            self.end(None)
        return goes_on

    def _step(self, strand: Strand) -> bool:
        """Do a step of a strand; returns whether it goes on."""
        try:
            result = strand.step()
        except StopIteration:
            return False
        if result is not None:
            self.deliver(result)
        return True

    def end(self, error: BaseException | None) -> None:
        """Close the strands under way, and deliver `Ended`; waiting ones have not begun."""
        for strand in self.strands:
            strand.steps.close()
        self.strands = []
        self.deliver(Ended(error))


class Worker:
    """Does a step of each active task in turn, so that a short one does not wait for a long one.

    All tasks run in one thread: the model, its caches and its memories are never used by two.
    """

    def __init__(
        self, answer: Answer, max_waiting: int = MAX_WAITING, max_active: int = MAX_ACTIVE
    ) -> None:
        """Args:
        answer: answers questions of strands, in the thread of the worker.
        """
        self._answer = answer
        self._max_waiting = max_waiting
        self._max_active = max_active
        self._waiting: deque[Task] = deque()
        self._active: list[Task] = []
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

    def submit(self, strands: Iterable[Steps], deliver: Callable[[Any], None]) -> Task:
        """Add a task, whose results go to `deliver` in the thread of the worker.

        Raises: Refusal if too many wait already, or the worker is closed.
        """
        task = Task(deque(strands), deliver)
        with self._condition:
            if self._closed:
                raise Refusal(503, "The server is shutting down.", code="shutting_down")
            # Nobody waits for a cancelled task, so it takes no place in the queue.
            self._waiting = deque(
                waiting for waiting in self._waiting if not waiting.cancelled.is_set()
            )
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
            max_strands = max(1, MAX_ROWS // len(self._active))
            going_on = [task for task in self._active if task.step(max_strands)]
            with self._condition:
                self._active = going_on
            self._answer_all(strand for task in going_on for strand in task.strands)

    def _await_work(self) -> bool:
        """Wait until a task is active; False: the worker is closed, and no task is left."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._active or self._closed)
            while self._waiting and len(self._active) < self._max_active:
                self._active.append(self._waiting.popleft())
            return bool(self._active)

    def _answer_all(self, strands: Iterable[Strand]) -> None:
        """Answer the questions of a round, those about the same in one call."""
        groups: dict[Hashable, list[Strand]] = {}
        for strand in strands:
            if strand.ask is not None:
                groups.setdefault(strand.ask.about, []).append(strand)
        for about, asking in groups.items():
            items = [strand.ask.item for strand in asking if strand.ask is not None]
            try:
                answers = self._answer(about, items)
            except Exception as error:
                for strand in asking:
                    strand.error = error
                continue
            for strand, answer in zip(asking, answers, strict=True):
                strand.answer = answer
