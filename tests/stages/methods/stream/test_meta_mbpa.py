"""Meta-MbPA, beside its equations in float64 and finite differences."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stages.memory.episodic import nearest, squared_distances
from stages.methods import METHODS
from stages.methods.stream.memory import DRAW
from stages.methods.stream.meta_mbpa import far_ones
from tests.builders.meta import gradients, scores
from tests.stages.methods.stream.updates import SIZE, Watched, model_for, read_stream, stream

RATE = 0.1


def made(written: int = 12, **settings: object) -> Watched:
    """An update of a small stream; the first so many documents are in memory."""
    model, _ = model_for("meta-mbpa")
    chosen = METHODS.settings("meta-mbpa").model_validate(
        {"k": 3, "inner_lr": 0.5, "block": 10**6, **settings}
    )
    keys = np.random.default_rng(5).normal(size=(32, 6)).astype(np.float32)
    method = METHODS.load("meta-mbpa")(chosen, {"episodes": keys})
    tasks = stream()
    method.begin_stream(model, tasks, 3)
    method.begin_task(tasks[0])
    method.memory.write(np.arange(written), 0, 1.0, np.random.default_rng(0))
    return Watched(model, method, lr=RATE)


def after_step(update: Watched, weights: dict, documents: list[int], rate: float = 0.5) -> dict:
    """θ̃ of the neighbours of some documents, found by loops."""
    keys, found = update.method.side_inputs["episodes"], set()
    for one in documents:
        distances = [float(((keys[one].astype(float) - keys[row]) ** 2).sum()) for row in range(12)]
        found |= set(np.argsort(distances, kind="stable")[:3].tolist())
    beside = update.method._split.batch(np.array(sorted(found)))
    own = gradients(update.model, weights, beside)
    return {name: one - rate * own[name] for name, one in weights.items()}


def own_weights(update: Watched) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in update.model.named_parameters()}


@pytest.mark.parametrize("adapt", ["batch", "example"])
def test_first_order_is_the_gradient_at_the_changed_weights(adapt: str) -> None:
    update = made(adapt=adapt)
    documents = [13, 17, 14, 19]
    groups = [documents] if adapt == "batch" else [[one] for one in documents]
    before, wanted = own_weights(update), None
    for group in groups:
        at = after_step(update, before, group)
        own = gradients(update.model, at, update.method._split.batch(np.array(group)))
        wanted = {
            n: (0 if wanted is None else wanted[n]) + one / len(groups) for n, one in own.items()
        }
    update.read(update.method._split.batch(np.array(documents)))
    for name, weight in own_weights(update).items():
        torch.testing.assert_close(
            weight, before[name] - RATE * wanted[name], rtol=1e-9, atol=1e-12
        )


def test_second_order_is_the_derivative_of_the_loss_after_the_step() -> None:
    update = made(second_order=True)
    documents = [13, 17, 14, 19]
    batch, before = update.method._split.batch(np.array(documents)), own_weights(update)

    def loss(name: str, place: tuple, change: float) -> float:
        weights = {n: one.clone() for n, one in before.items()}
        weights[name][place] += change
        at = after_step(update, weights, documents)
        return float(F.cross_entropy(scores(update.model, at, batch), batch.labels))

    update.read(batch)
    first = made()
    first.read(batch)
    places = (("head.weight", (0, 0)), ("head.bias", (2,)), ("head.weight", (3, 5)))
    for name, place in places:
        found = float((before[name] - own_weights(update)[name])[place]) / RATE
        slope = (loss(name, place, 1e-5) - loss(name, place, -1e-5)) / 2e-5
        assert found == pytest.approx(slope, rel=1e-4, abs=1e-9)
    assert not torch.allclose(
        own_weights(first)["head.weight"], own_weights(update)["head.weight"], rtol=1e-6
    )


def test_a_draw_from_memory_is_learnt_after_the_batch() -> None:
    update = made(every=SIZE, rate=1.0)
    documents, weights = [13, 17, 14, 19], own_weights(update)
    update.read(update.method._split.batch(np.array(documents)))
    drawn = update.method.memory.draw(SIZE, update.method.random(DRAW, 0, 0)).tolist()
    assert update.steps == 2 and set(drawn) <= set(range(12)) and len(drawn) == SIZE
    for group in (documents, drawn):
        own = gradients(
            update.model,
            after_step(update, weights, group),
            update.method._split.batch(np.array(group)),
        )
        weights = {name: one - RATE * own[name] for name, one in weights.items()}
    for name, weight in own_weights(update).items():
        torch.testing.assert_close(weight, weights[name], rtol=1e-9, atol=1e-12)


def test_without_enough_memory_the_loss_is_plain() -> None:
    update = made(written=2)
    before, batch = own_weights(update), update.method._split.batch(np.array([13, 17, 14, 19]))
    own = gradients(update.model, before, batch)
    update.read(batch)
    for name, weight in own_weights(update).items():
        torch.testing.assert_close(weight, before[name] - RATE * own[name], rtol=1e-9, atol=1e-12)


def test_far_examples_are_drawn_the_more_often_and_near_ones_never() -> None:
    distances = np.array([0.0, 0.5, 8.0, 8.0])
    weights = 1 - np.exp(-distances / 2)
    counts = np.zeros(4)
    for seed in range(4000):
        counts[far_ones(distances, 1, 2.0, np.random.default_rng(seed))] += 1
    np.testing.assert_allclose(counts / 4000, weights / weights.sum(), atol=0.03)
    assert set(far_ones(np.zeros(5), 3, 1.0, np.random.default_rng(0)).tolist()) <= set(range(5))


def test_each_full_block_is_written_in_part_and_the_rest_waits() -> None:
    update = made(written=0, block=8, write=0.25, every=SIZE * 100)
    read_stream(update, stream())
    rows, tasks = update.method.kept_documents()
    assert len(rows) == len(set(rows.tolist())) == 2 * (32 // 8)
    assert [int(task) for task in tasks] == [int(row >= 20) for row in rows]
    keys = update.method.side_inputs["episodes"]
    second = [min(squared_distances(keys[one], keys[rows[:2]])) for one in range(8, 16)]
    assert update.method._beta == pytest.approx(np.median(second))


def test_what_waits_at_the_end_of_the_stream_is_a_block_too() -> None:
    update = made(written=0, block=24, write=0.25, every=SIZE * 100)
    read_stream(update, stream())
    rows, _ = update.method.kept_documents()
    assert (
        (rows < 24).sum() == 6
        and (rows >= 24).sum() == 2
        and not len(update.method.state_dict()["waiting"])
    )


def test_neighbors_are_those_of_memory_alone() -> None:
    update = made()
    found = update.method.neighbors(np.array([20, 31]))
    assert set(found.tolist()) <= set(range(12)) and len(found) <= 6
    keys = update.method.side_inputs["episodes"]
    assert set(nearest(squared_distances(keys[20], keys[:12]), 3).tolist()) <= set(found.tolist())


def test_a_document_of_memory_is_its_own_neighbor_unless_excluded() -> None:
    keys = made().method.side_inputs["episodes"]
    others = [row for row in range(12) if row != 4]
    distances = [float(((keys[4].astype(float) - keys[row]) ** 2).sum()) for row in others]
    expected = sorted(others[place] for place in np.argsort(distances, kind="stable")[:3])
    assert 4 in made().method.neighbors(np.array([4]))
    excluding = made(own_neighbor=False)
    assert excluding.method.neighbors(np.array([4])).tolist() == expected


def test_without_enough_others_in_memory_the_loss_is_plain() -> None:
    update = made(written=3, own_neighbor=False)
    batch = update.method._split.batch(np.array([2]))
    before = own_weights(update)
    plain = gradients(update.model, before, batch)
    update.read(batch)
    for name, weight in own_weights(update).items():
        torch.testing.assert_close(weight, before[name] - RATE * plain[name], rtol=1e-9, atol=1e-12)


def test_beta_weighs_how_far_an_example_of_a_block_is_from_memory() -> None:
    beta, written, kept = 3.0, 6, 3
    update = made(written=written, beta=beta, block=12, write=kept / 12)
    keys, block = update.method.side_inputs["episodes"], np.arange(written, written + 12)
    weights = []
    for one in block:
        nearby = min(
            sum((float(a) - float(b)) ** 2 for a, b in zip(keys[one], keys[row], strict=True))
            for row in range(written)
        )
        weights.append(1 - math.exp(-nearby / beta))
    for seed in range(20):
        drawn = np.random.default_rng(seed).choice(
            block, kept, replace=False, p=np.array(weights) / sum(weights)
        )
        chosen = update.method._chosen(np.stack((block, block * 0), 1), np.random.default_rng(seed))
        assert chosen[:, 0].tolist() == sorted(drawn.tolist())
