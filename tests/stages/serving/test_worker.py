"""One thread, several tasks: their turns, their ends, and how many may wait."""

import threading
from collections.abc import Iterator

import pytest

from stages.serving.refusal import Refusal
from stages.serving.settings import MAX_ROWS
from stages.serving.worker import Ask, Ended, Steps, Worker

SECONDS = 10


class Waiting:
    """A consumer that waits for the end of a task."""

    def __init__(self) -> None:
        self.results: list[object] = []
        self._ended = threading.Event()

    def __call__(self, result: object) -> None:
        self.results.append(result)
        if isinstance(result, Ended):
            self._ended.set()

    def ended(self) -> list[object]:
        assert self._ended.wait(SECONDS)
        return self.results


def given(*results: object) -> Steps:
    yield from results


def doubled(about: object, items: list[int]) -> list[int]:
    if about == "wrong":
        raise RuntimeError("wrong")
    return [2 * item for item in items]


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(doubled, max_waiting=2, max_active=2)
    yield made
    made.close()


def test_tasks_take_turns_in_one_thread(worker: Worker) -> None:
    held, order, threads = threading.Event(), list[str](), set[int]()

    def steps(name: str, number: int) -> Steps:
        held.wait(SECONDS)
        for _ in range(number):
            order.append(name)
            threads.add(threading.get_ident())
            yield name

    consumers = [Waiting(), Waiting()]
    worker.submit([steps("long", 5)], consumers[0])
    worker.submit([steps("short", 2)], consumers[1])
    held.set()
    assert consumers[1].ended() == ["short", "short", Ended()]
    assert consumers[0].ended() == ["long"] * 5 + [Ended()]
    assert order.index("short") < 3 and len(threads) == 1


def test_too_many_tasks_are_refused_until_there_is_room(worker: Worker) -> None:
    held, begun = threading.Event(), threading.Event()

    def steps() -> Steps:
        begun.set()
        held.wait(SECONDS)
        yield None

    consumers = [Waiting() for _ in range(3)]
    worker.submit([steps()], consumers[0])
    assert begun.wait(SECONDS)
    tasks = [worker.submit([steps()], consumer) for consumer in consumers[1:]]
    with pytest.raises(Refusal) as refusal:
        worker.submit([steps()], Waiting())
    assert refusal.value.status == 429 and int(refusal.value.headers["Retry-After"]) > 0
    tasks[0].cancel()
    last = Waiting()
    worker.submit([steps()], last)
    held.set()
    assert last.ended() == consumers[2].ended() == [Ended()]


def test_a_cancelled_task_ends_at_its_next_step(worker: Worker) -> None:
    consumer, closed = Waiting(), threading.Event()

    def steps() -> Steps:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            closed.set()

    task = worker.submit([steps()], consumer)
    while not consumer.results:
        pass
    task.cancel()
    consumer.ended()
    assert closed.is_set()


def test_an_error_ends_its_task_alone(worker: Worker) -> None:
    def wrong() -> Steps:
        yield 1
        raise RuntimeError("wrong")

    consumer = Waiting()
    worker.submit([wrong()], consumer)
    *_, ended = consumer.ended()
    assert isinstance(ended, Ended) and isinstance(ended.error, RuntimeError)
    other = Waiting()
    worker.submit([given(1, 2)], other)
    assert other.ended() == [1, 2, Ended()]


def test_a_closed_worker_takes_no_task() -> None:
    worker = Worker(doubled)
    assert worker.alive
    worker.close()
    assert not worker.alive
    with pytest.raises(Refusal, match="shutting down"):
        worker.submit([given(1)], Waiting())


def asking(about: str, *items: int) -> Steps:
    for item in items:
        yield (item, (yield Ask(about, item)))


def test_questions_of_a_round_are_answered_in_one_call() -> None:
    calls: list[tuple[object, list[int]]] = []

    def answer(about: object, items: list[int]) -> list[int]:
        calls.append((about, items))
        return doubled(about, items)

    worker, consumer = Worker(answer), Waiting()
    worker.submit([asking("a", 1, 2), asking("b", 3), asking("a", 4, 5)], consumer)
    *results, _ = consumer.ended()
    worker.close()
    assert sorted(results) == [(1, 2), (2, 4), (3, 6), (4, 8), (5, 10)]
    assert calls[:2] == [("a", [1, 4]), ("b", [3])]
    assert ("a", [2, 5]) in calls


def test_a_question_that_cannot_be_answered_ends_the_tasks_that_asked(worker: Worker) -> None:
    consumer, other = Waiting(), Waiting()
    worker.submit([asking("wrong", 1), given(7)], consumer)
    worker.submit([asking("a", 1)], other)
    ended = consumer.ended()[-1]
    assert isinstance(ended, Ended) and isinstance(ended.error, RuntimeError)
    assert other.ended() == [(1, 2), Ended()]


def test_only_some_strands_of_a_task_are_under_way(worker: Worker) -> None:
    under_way = most = 0

    def steps() -> Steps:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        yield None
        yield None
        under_way -= 1

    consumer = Waiting()
    worker.submit([steps() for _ in range(3 * MAX_ROWS)], consumer)
    consumer.ended()
    assert most == MAX_ROWS and under_way == 0
