"""Replay: which examples are learnt again, and when."""

import numpy as np
import pytest

from tests.stages.methods.stream.updates import SIZE, Watched, model_for, read_stream, stream


@pytest.mark.parametrize(("every", "rate"), [(8, 0.5), (4, 1.0), (12, 0.75)])
def test_a_draw_follows_every_so_many_examples_and_is_of_what_was_read(every: int, rate: float) -> None:
    model, method = model_for("replay", every=every, rate=rate)
    update = Watched(model, method)
    read_stream(update, stream())
    seen: set[int] = set()
    drawn: list[list[int]] = []
    for documents in update.learnt:
        if set(documents) & seen:
            assert set(documents) <= seen  # drawn, so all of it was written
            drawn.append(documents)
        else:
            seen |= set(documents)
    assert len(seen) == 32
    assert sum(map(len, drawn)) == (32 // every) * int(rate * every)
    assert update.steps == len(update.learnt)


def test_a_bounded_memory_keeps_the_first_of_each_task() -> None:
    model, method = model_for("replay", every=8, rate=0.5, size=6)
    update = Watched(model, method)
    read_stream(update, stream())
    assert method.memory.rows.tolist() == [*range(6), *range(20, 26)]
    assert method.memory.tasks.tolist() == [0] * 6 + [1] * 6


def test_draws_depend_on_seed_and_update_alone() -> None:
    model, method = model_for("replay", every=8, rate=0.5, write=0.5)
    update = Watched(model, method)
    read_stream(update, stream())
    again_model, again = model_for("replay", every=8, rate=0.5, write=0.5)
    other = Watched(again_model, again)
    tasks = stream()
    again.begin_stream(again_model, tasks, 3)
    again.begin_task(tasks[0])
    for start in range(0, 12, SIZE):
        other.read(tasks[0].examples.batch(np.arange(start, start + SIZE)))
    resumed_model, resumed = model_for("replay", every=8, rate=0.5, write=0.5)
    resumed.load_state_dict(again.state_dict())
    late = Watched(resumed_model, resumed)
    late.number = other.number
    resumed.begin_stream(resumed_model, tasks, 3)
    for task, first in ((tasks[0], 12), (tasks[1], 0)):
        if not first:
            resumed.begin_task(task)
        for start in range(first, task.examples.count, SIZE):
            late.read(task.examples.batch(np.arange(start, start + SIZE)))
    assert other.learnt + late.learnt == update.learnt
    assert resumed.memory.rows.tolist() == method.memory.rows.tolist()
