"""Replay: which examples are learnt again, and when."""

import numpy as np
import pytest
import torch

from tests.stages.methods.stream.test_meta import gradients
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
