"""OML-ER and ANML-ER, beside an episode written out in float64."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from stages.methods.method import BatchIndex, UpdateBatch
from tests.builders.meta import gradients
from tests.stages.methods.stream.updates import SIZE, Watched, model_for, read_stream, stream


def is_fast(method: str, name: str) -> bool:
    return (
        name.startswith("head.")
        if method == "oml-er"
        else not name.startswith(("head.modulator", "frozen."))
    )


@pytest.mark.parametrize("method", ["oml-er", "anml-er"])
def test_an_episode_learns_from_the_query_at_the_fast_weights(method: str) -> None:
    """Two batches of support, and the next one as the query; memory is asked too seldom to matter."""
    model, made = model_for(method, support=2, inner_lr=0.3, every=10**6)
    task = stream()[0]
    made.begin_stream(model, [task], 3)
    made.begin_task(task)
    update, lr = Watched(model, made, lr=0.1), 0.1
    batches = [task.examples.batch(np.arange(start, start + SIZE)) for start in range(0, 20, SIZE)]
    slow = {name: one.detach().clone() for name, one in model.named_parameters()}
    for episode in (0, 3):
        fast = dict(slow)
        for batch in batches[episode : episode + 2]:
            own = gradients(model, fast, batch)
            fast = {n: w - 0.3 * own[n] if is_fast(method, n) else w for n, w in fast.items()}
            update.read(batch)
            for name, weight in model.named_parameters():
                torch.testing.assert_close(weight.detach(), slow[name], rtol=1e-14, atol=1e-15)
        if episode:
            break
        own = gradients(model, fast, batches[2])
        slow = {n: w - lr * own[n] if n in own else w for n, w in slow.items()}
        update.read(batches[2])
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weight.detach(), slow[name], rtol=1e-9, atol=1e-12)
    kept = made.state_dict()
    for name, one in fast.items():
        if is_fast(method, name) and (name.startswith("head.") or f"fast/{name}" in kept):
            torch.testing.assert_close(kept[f"fast/{name}"], one, rtol=1e-9, atol=1e-12)


def test_a_draw_is_learnt_from_at_the_fast_weights() -> None:
    """R_F = 2: the query of the second episode is a draw, in batches of a size, whose mean is
    learnt.
    """
    model, made = model_for("oml-er", support=1, every=6, rate=1.0, inner_lr=0.3)
    task = stream()[0]
    made.begin_stream(model, [task], 3)
    made.begin_task(task)
    made.memory.write(np.arange(8, 20), 0, 1.0, np.random.default_rng(0))
    update = Watched(model, made, lr=0.1)
    for start in (0, SIZE):  # the first episode
        update.read(task.examples.batch(np.arange(start, start + SIZE)))
    update.learnt.clear()
    batch = task.examples.batch(np.arange(2 * SIZE, 3 * SIZE))
    slow = {name: one.detach().clone() for name, one in model.named_parameters()}
    own = gradients(model, slow, batch)
    fast = {n: w - 0.3 * own[n] if is_fast("oml-er", n) else w for n, w in slow.items()}
    update.read(batch)
    drawn = [document for documents in update.learnt[1:] for document in documents]
    assert (
        update.steps == 2 and len(drawn) == 6 and len(update.learnt) == 3
    )  # a batch of four, and one of two
    own = gradients(model, fast, made._split.batch(np.array(drawn)))
    for name, weight in model.named_parameters():
        torch.testing.assert_close(
            weight.detach(), slow[name] - 0.1 * own[name], rtol=1e-9, atol=1e-12
        )


def test_memory_is_asked_in_every_so_many_episodes() -> None:
    model, made = model_for("oml-er", support=1, every=3 * SIZE, rate=0.5)
    update = Watched(
        model, made
    )  # R_F = (3 + 1) / 2 = 2: every second episode has one batch and a draw
    read_stream(update, stream())
    streams = [
        documents
        for documents in update.learnt
        if documents == sorted(documents) and len(documents) == SIZE
    ]
    draws = [documents for documents in update.learnt if documents not in streams]
    assert sum(map(len, streams)) == 32 and len(streams) == 8
    assert (
        update.steps == 5 and sum(map(len, draws)) == 2 * 6
    )  # episodes of 2, 1, 2, 1 and 2 batches


def test_the_interval_counts_all_examples_of_an_update() -> None:
    """Of batches half as large there are twice as many: the same episodes ask memory."""
    model, made = model_for("oml-er", support=1, every=3 * SIZE, rate=0.5)
    update, task = Halved(model, made), stream()[0]
    made.begin_stream(model, [task], 3)
    made.begin_task(task)
    for start in range(0, 5 * SIZE, SIZE):
        update.read(task.examples.batch(np.arange(start, start + SIZE)))
    assert sum(map(len, update.learnt)) == 5 * SIZE + 6  # the second of three episodes has a draw


class Halved(Watched):
    """An update of two batches."""

    accumulate = 2

    def batches(self) -> Iterator[UpdateBatch]:
        for half in np.split(self.batch.documents, 2):
            yield UpdateBatch(self.method._split.batch(half), accumulate=self.accumulate)


def test_the_last_batch_is_a_query() -> None:
    model, made = model_for("oml-er", support=5)
    update, task = Watched(model, made), stream()[0]
    made.begin_stream(model, [task], 3)
    made.begin_task(task)
    made.batch(task.examples, np.arange(SIZE), BatchIndex(1, 1, 2, 0))
    update.read(task.examples.batch(np.arange(SIZE)))
    assert update.steps == 1


def test_the_copy_that_gates_read_is_of_the_beginning_and_stays() -> None:
    model, made = model_for("anml-er", support=1)
    before = {name: one.detach().clone() for name, one in model.backbone.named_parameters()}
    assert model.frozen is not None
    torch.nn.init.normal_(next(model.frozen.backbone.parameters()))
    read_stream(Watched(model, made), stream())
    for name, one in model.frozen.backbone.named_parameters():
        assert torch.equal(one, before[name]) and not one.requires_grad
    assert any(
        not torch.equal(one, before[name]) for name, one in model.backbone.named_parameters()
    )
    learnt = {id(weight) for group in made.parameter_groups(model) for weight in group.parameters}
    assert not learnt & {id(weight) for weight in model.frozen.parameters()}


def test_the_gates_are_those_of_the_formula() -> None:
    model, _ = model_for("anml-er")
    batch = stream()[0].examples.batch(np.array([3, 1]))
    head, found = model.head, model.label_scores(batch).detach().numpy()
    hidden, frozen = (one.read(batch).hidden.detach().numpy() for one in (model, model.frozen))
    first, second = head.modulator[0], head.modulator[2]
    for row, length in enumerate(batch.mask.sum(1).tolist()):
        h, r = hidden[row, :length].mean(0), frozen[row, :length].mean(0)
        inner = np.maximum(first.weight.detach().numpy() @ r + first.bias.detach().numpy(), 0)
        gate = 1 / (
            1 + np.exp(-(second.weight.detach().numpy() @ inner + second.bias.detach().numpy()))
        )
        wanted = head.weight.detach().numpy() @ (h * gate) + head.bias.detach().numpy()
        np.testing.assert_allclose(found[row], wanted, rtol=1e-10)
