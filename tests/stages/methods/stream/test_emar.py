"""EMAR, beside its equations in float64."""

from itertools import chain

import numpy as np
import pytest
import torch

from stages.examples.examples import Batch, Task
from stages.memory.episodic import representatives
from stages.methods.method import UpdateBatch
from tests.stages.methods.stream.updates import SIZE, Watched, model_for, stream

RATE = 0.1


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in model.named_parameters()}


def represented(update: Watched, rows: np.ndarray) -> np.ndarray:
    """h, one document at a time."""
    found = []
    for row in rows:
        batch = update.method._split.batch(np.array([row]))
        with torch.no_grad():
            found.append(update.model.read(batch).hidden[0].mean(0).numpy())
    return np.stack(found)


def begun(**settings: object) -> Watched:
    model, method = model_for("emar", **settings)
    method.begin_stream(model, stream(), 3)
    return Watched(model, method, lr=RATE)


def read_pass(update: Watched, place: int) -> None:
    task = stream()[place]
    for start in range(0, task.examples.count, SIZE):
        update.read(task.examples.batch(np.arange(start, start + SIZE)))


def test_a_pass_reads_the_task_and_memory_once_and_the_first_one_writes() -> None:
    update = begun(size=6)
    tasks = stream()
    update.method.begin_task(tasks[0])
    read_pass(update, 0)
    kept = update.method.memory.rows.tolist()
    assert sorted(chain(*update.learnt)) == list(range(20)) and 0 < len(kept) <= 6
    update.method.end_task(tasks[0])
    update.learnt.clear()
    update.method.begin_task(tasks[1])
    read_pass(update, 1)
    assert sorted(chain(*update.learnt)) == sorted([*range(20, 32), *kept])
    assert len(update.method.memory) <= 12 and set(kept) < set(update.method.memory.rows.tolist())
    update.learnt.clear()
    read_pass(update, 1)
    memory = update.method.memory.rows.tolist()
    assert sorted(chain(*update.learnt)) == sorted([*range(20, 32), *memory, *memory]), (
        "activated, reconsolidated"
    )
    assert all(len(one) <= 5 for one in update.learnt[-len(memory) // 5 :])


def test_activation_weighs_every_document_alike() -> None:
    update, tasks = begun(size=6), stream()
    update.method.begin_task(tasks[0])
    read_pass(update, 0)
    update.method.end_task(tasks[0])
    update.method.begin_task(tasks[1])
    update.learnt.clear()
    own = tasks[1].examples.batch(np.arange(SIZE))
    logs = []

    def noted(batch):
        model = update.model
        logs.extend(
            model.label_scores(batch)
            .log_softmax(1)[torch.arange(len(batch.labels)), batch.labels]
            .tolist()
        )
        return Watched.loss_of(update, batch)

    update.loss_of = noted
    loss = update.read(own)
    assert len(logs) > SIZE and len(update.learnt) == 2  # the batch and its share of memory
    assert float(loss) == pytest.approx(-np.mean(logs), rel=1e-12)


def test_a_task_that_is_read_in_part_is_written_at_its_end() -> None:
    update, task = begun(size=6), stream()[0]
    update.method.begin_task(task)
    update.read(task.examples.batch(np.arange(SIZE)))
    assert len(update.method.memory) == 0
    update.method.end_task(task)
    assert 0 < len(update.method.memory) <= 6
    assert torch.equal(update.model.head.prototypes, update.method.made_prototypes())


def feed(update: Watched, task: Task, count: int) -> None:
    """Make the update one of `count` batches of four documents, five batches a pass."""
    rows = np.arange(20).reshape(5, 4)
    batches = [task.examples.batch(rows[number % 5]) for number in range(count)]
    update.accumulate = count
    update.batches = lambda: (UpdateBatch(batch, accumulate=count) for batch in batches)


def test_an_update_that_ends_two_passes_ends_each() -> None:
    update, task = begun(size=6), stream()[0]
    feed(update, task, 10)
    update.method.begin_task(task)
    update.method.step(update)
    kept = update.method.memory.rows.tolist()
    assert 0 < len(kept) <= 6, "the first writes"
    assert sorted(chain(*update.learnt[10:])) == sorted(kept), "the second reconsolidates"


@pytest.mark.parametrize(
    ("batches", "reconsolidated"), [(7, 0), (8, 1), (9, 1), (10, 1), (12, 1), (13, 2)]
)
def test_the_last_pass_ends_with_its_task_if_half_of_it_was_read(
    batches: int, reconsolidated: int
) -> None:
    """Five batches a pass: updates of several need not end where a pass does."""
    update, task = begun(size=6), stream()[0]
    feed(update, task, batches)
    update.method.begin_task(task)
    update.method.step(update)
    update.method.end_task(task)
    kept = update.method.memory.rows.tolist()
    assert sorted(chain(*update.learnt[batches:])) == sorted(kept * reconsolidated)
    assert torch.equal(update.model.head.prototypes, update.method.made_prototypes())


def test_prototypes_are_means_of_the_weight_and_of_memory() -> None:
    update = begun(size=6)
    task = stream()[0]
    update.method.begin_task(task)
    read_pass(update, 0)
    rows = update.method.memory.rows
    hidden, labels, own = (
        represented(update, rows),
        task.examples.labels[rows],
        update.model.head.weight.detach(),
    )
    wanted = own.numpy().copy()
    for label in range(4):
        others = [hidden[place] for place in range(len(rows)) if labels[place] == label]
        wanted[label] = sum(others, own[label].numpy().copy()) / (1 + len(others))
    np.testing.assert_allclose(update.model.head.prototypes.numpy(), wanted, rtol=1e-9)
    update.model.eval()
    batch = update.method._split.batch(np.array([2, 9]))
    scores = update.model.label_scores(batch).detach().numpy()
    np.testing.assert_allclose(
        scores[:, :2], represented(update, np.array([2, 9])) @ wanted[:2].T, rtol=1e-9
    )
    assert (scores[:, 2:] == -np.inf).all()  # labels of the second task are not known yet


def test_reconsolidation_descends_the_loss_of_constant_prototypes() -> None:
    update = begun(size=3, consolidation_batch=20)
    task = stream()[0]
    update.method.begin_task(task)
    read_pass(update, 0)
    rows, prototypes = update.method.memory.rows, update.model.head.prototypes.clone()
    before = weights(update.model)
    batch = update.method._split.batch(rows)
    hidden = update.model.read(batch).hidden
    pooled = (hidden * batch.mask[..., None]).sum(1) / batch.mask.sum(1, keepdim=True)
    picked = torch.log_softmax(pooled @ prototypes[:2].T, 1)[torch.arange(len(rows)), batch.labels]
    (-picked.mean()).backward()
    wanted = {
        n: one.grad.clone() for n, one in update.model.named_parameters() if one.grad is not None
    }
    update.model.zero_grad(set_to_none=True)
    update.method._reconsolidate(update, 2)
    for name, one in weights(update.model).items():
        torch.testing.assert_close(
            one, before[name] - RATE * wanted.get(name, 0), rtol=1e-9, atol=1e-12
        )
    assert "head.weight" not in wanted


@pytest.mark.parametrize("seed", range(4))
def test_representatives_are_the_nearest_to_the_centres_of_a_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    points = random.normal(size=(40, 3))
    found = representatives(points, 5, np.random.default_rng(seed))
    centres = [points[one] for one in np.random.default_rng(seed).choice(40, 5, replace=False)]
    for _ in range(20):
        groups = [[] for _ in centres]
        for point in points:
            groups[
                min(range(5), key=lambda one: (((point - centres[one]) ** 2).sum(), one))
            ].append(point)
        centres = [
            sum(group) / len(group) if group else centres[one] for one, group in enumerate(groups)
        ]
    wanted = {
        min(range(40), key=lambda row: (((points[row] - one) ** 2).sum(), row)) for one in centres
    }
    assert found.tolist() == sorted(wanted)
    assert representatives(points[:3], 5, random).tolist() == [0, 1, 2]


def test_weights_begin_once_at_the_encoded_names() -> None:
    model, method = model_for("emar")
    names = ((3, 4), (5,), (6, 7, 8), (9, 1))
    model.config = model.config.model_copy(
        update={"head": model.config.head.model_copy(update={"names": names})}
    )
    method.begin_stream(model, stream(), 3)
    for weight, name in zip(model.head.weight, names, strict=True):
        inputs = torch.tensor([[0, *name]])
        alone = Batch(inputs=inputs, targets=inputs, places=np.zeros((1, len(name) + 1), np.int64))
        assert torch.allclose(weight, model.read(alone).hidden[0].mean(0), rtol=1e-12, atol=0)
    method.begin_task(stream()[0])
    learnt = model.head.weight.detach() + 1
    model.head.weight.data.copy_(learnt)
    method.begin_stream(model, stream(), 3)
    assert model.head.weight.equal(learnt)
