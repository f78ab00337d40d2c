"""Replay: which examples are learnt again, and when."""

import numpy as np
import pytest
import torch

from tests.builders.meta import gradients
from tests.stages.methods.stream.updates import SIZE, Watched, model_for, read_stream, stream


@pytest.mark.parametrize(("every", "rate"), [(8, 0.5), (4, 1.0), (12, 0.75)])
def test_a_draw_follows_every_so_many_examples_and_is_of_what_was_read(
    every: int, rate: float
) -> None:
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


@pytest.mark.parametrize(("method", "every"), [("replay", 1), ("replay", 8), ("a-gem", 1)])
def test_the_size_of_a_draw_is_a_setting_of_its_own(method: str, every: int) -> None:
    """`every=1` is A-GEM as in its paper: its reference gradient is not of a single document."""
    model, made = model_for(method, every=every, draw=6)
    update = Watched(model, made)
    tasks = stream()
    made.begin_stream(model, tasks, 3)
    made.begin_task(tasks[0])
    for start in range(0, 4 * SIZE, SIZE):
        update.learnt.clear()
        update.read(tasks[0].examples.batch(np.arange(start, start + SIZE)))
    drawn = [document for documents in update.learnt[1:] for document in documents]
    times = 1 if method == "a-gem" else max(1, SIZE // every)
    assert len(drawn) == 6 * times


def test_the_number_of_draws_is_known_before() -> None:
    for method, settings in {
        "replay": {"every": 6, "draw": 3},
        "a-gem": {"every": 1, "draw": 3},
        "oml-er": {"every": 3 * SIZE, "support": 1, "draw": 3},
    }.items():
        model, made = model_for(method, **settings)
        draws, draw = [], made.draw
        made.draw = lambda *given, draw=draw, draws=draws: draws.append(given) or draw(*given)
        read_stream(Watched(model, made), stream())
        # A-GEM has nothing to draw from before its first update.
        assert len(draws) == made.settings.draws(8, SIZE) - (method == "a-gem")


def test_a_bounded_memory_keeps_the_first_of_each_task() -> None:
    model, method = model_for("replay", every=8, rate=0.5, size=6)
    update = Watched(model, method)
    read_stream(update, stream())
    assert method.memory.rows.tolist() == [*range(6), *range(20, 26)]
    assert method.memory.tasks.tolist() == [0] * 6 + [1] * 6


def test_weights_are_those_of_plain_descent_on_what_was_read_and_drawn_in_turn() -> None:
    model, method = model_for("replay", every=2 * SIZE, rate=0.75)
    update, weights = (
        Watched(model, method, lr=0.1),
        {n: one.detach().clone() for n, one in model.named_parameters()},
    )
    read_stream(update, stream())
    assert {len(documents) for documents in update.learnt} == {
        SIZE,
        2,
    }  # a draw of six is one of four, and one of two
    for documents in update.learnt:
        own = gradients(model, weights, method._split.batch(np.array(documents)))
        weights = {name: one - 0.1 * own[name] for name, one in weights.items()}
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.detach(), weights[name], rtol=1e-9, atol=1e-12)
