"""Replay: which examples are learnt again, and when."""

import pytest

from tests.stages.methods.stream.updates import Watched, model_for, read_stream, stream


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
