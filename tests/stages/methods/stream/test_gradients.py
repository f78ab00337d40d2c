"""A-GEM, GEM, EWC and MAS on a small stream: what they do to the weights, by their definitions."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stages.methods.stream.projection import pop_gradient
from tests.stages.methods.stream.updates import SIZE, Watched, model_for, read_stream, stream


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def gradient(model: torch.nn.Module, batch: object) -> torch.Tensor:
    F.cross_entropy(model.label_scores(batch), batch.labels).backward()  # type: ignore[attr-defined,operator]
    return pop_gradient(list(model.parameters()))


@pytest.mark.parametrize(
    ("method", "settings"),
    [("a-gem", {"every": SIZE, "rate": 1.0}), ("gem", {"share": 0.5, "margin": 0.0})],
)
def test_no_step_raises_the_loss_on_what_was_kept(method: str, settings: dict) -> None:
    """Each step of plain descent, by the gradient of the very examples that the method reads."""
    model, made = model_for(method, **settings)
    update = Watched(model, made, lr=0.05)
    tasks, raised = stream(), 0
    made.begin_stream(model, tasks, 3)
    for task in tasks:
        made.begin_task(task)
        for start in range(0, task.examples.count, SIZE):
            before, own = weights(model), task.examples.batch(np.arange(start, start + SIZE))
            plain = gradient(model, own)
            update.learnt.clear()
            update.read(own)
            step = (
                torch.cat(
                    [(before[name] - weight).flatten() for name, weight in weights(model).items()]
                )
                / 0.05
            )
            kept = sorted({document for documents in update.learnt[1:] for document in documents})
            if kept:
                now = weights(model)
                model.load_state_dict(before, strict=False)
                reference = gradient(
                    model, made._split.of(np.array(kept)).batch(np.arange(len(kept)))
                )
                model.load_state_dict(now, strict=False)
                assert step @ reference > -1e-8
                if plain @ reference < -1e-6:
                    raised += 1
                    assert not torch.allclose(step, plain)
            else:
                torch.testing.assert_close(step, plain, rtol=1e-6, atol=1e-9)
        made.end_task(task)
    assert raised  # some would have raised it


def test_the_control_of_a_gem_adds_the_gradient_of_the_draw() -> None:
    model, made = model_for("a-gem", every=SIZE, draw=3, reference="added")
    update, examples = Watched(model, made, lr=0.05), stream()[0].examples
    made.begin_stream(model, stream(), 3)
    update.read(examples.batch(np.arange(SIZE)))
    update.learnt.clear()
    before, own = weights(model), examples.batch(np.arange(SIZE, 2 * SIZE))
    plain = gradient(model, own)
    update.read(own)
    (drawn,) = update.learnt[1:]
    assert len(drawn) == 3
    step = torch.cat([(before[name] - now).flatten() for name, now in weights(model).items()])
    model.load_state_dict(before, strict=False)
    reference = gradient(model, made._split.batch(np.array(drawn)))
    torch.testing.assert_close(step / 0.05, plain + reference, rtol=1e-8, atol=1e-10)


def test_gem_keeps_a_share_of_each_task() -> None:
    model, made = model_for("gem", share=0.25)
    read_stream(Watched(model, made), stream())
    rows, tasks = made.kept_documents()
    assert np.bincount(tasks).tolist() == [5, 3] and len(set(rows.tolist())) == 8
    assert (rows[tasks == 0] < 20).all() and (rows[tasks == 1] >= 20).all()


@pytest.mark.parametrize(("method", "decay"), [("ewc", 1.0), ("ewc", 0.25), ("mas", 0.5)])
def test_importance_of_the_head_has_a_closed_form(method: str, decay: float) -> None:
    """Of scores o = W h + b: ∂ log p / ∂W = (1[y] - p) hᵀ, and ∂ |o|² / ∂W = 2 o hᵀ."""
    model, made = model_for(method, penalty=0.0, examples=100, decay=decay)
    tasks = stream()
    made.begin_stream(model, tasks, 3)
    wanted_w, wanted_b = torch.zeros(4, 8).double(), torch.zeros(4).double()
    for row in range(20):
        batch = tasks[0].examples.batch(np.array([row]))
        with torch.no_grad():
            h, o = model.read(batch).hidden[0].mean(0), model.label_scores(batch)[0]
        if method == "ewc":
            left = (F.one_hot(batch.labels[0], 4) - torch.softmax(o, 0)) ** 2
            wanted_w, wanted_b = wanted_w + left[:, None] * h**2 / 20, wanted_b + left / 20
        else:
            wanted_w, wanted_b = (
                wanted_w + (2 * o[:, None] * h).abs() / 20,
                wanted_b + (2 * o).abs() / 20,
            )
    made.end_task(tasks[0])
    found = made.state_dict()
    torch.testing.assert_close(found["importance/head.weight"], wanted_w)
    torch.testing.assert_close(found["importance/head.bias"], wanted_b)
    assert torch.equal(found["own/head.weight"], model.head.weight)
    made.end_task(tasks[0])
    torch.testing.assert_close(made.state_dict()["importance/head.bias"], (1 + decay) * wanted_b)


@pytest.mark.parametrize("method", ["ewc", "mas"])
def test_without_a_penalty_it_is_plain_and_with_a_large_one_important_weights_stay(
    method: str,
) -> None:
    ends, moved = {}, {}
    for name, penalty in (("replay", None), (method, 0.0), (method, 4e4)):
        model, made = model_for(
            name, **({"every": 1000} if penalty is None else {"penalty": penalty})
        )
        update, tasks = Watched(model, made, lr=1e-4), stream()
        made.begin_stream(model, tasks, 3)
        for task in tasks:
            made.begin_task(task)
            before = weights(model)["head.bias"]
            for start in range(0, task.examples.count, SIZE):
                update.read(task.examples.batch(np.arange(start, start + SIZE)))
            ends[penalty] = weights(model)["head.bias"]
            made.end_task(task)
        moved[penalty] = float((ends[penalty] - before).abs().max())
    assert torch.equal(ends[None], ends[0.0])
    assert moved[4e4] < 0.95 * moved[0.0]


@pytest.mark.parametrize("method", ["ewc", "mas"])
def test_the_penalty_has_the_gradient_of_its_formula(method: str) -> None:
    model, made = model_for(method, penalty=3.0)
    tasks, update = stream(), Watched(model, made, lr=0.1)
    made.begin_stream(model, tasks, 3)
    made.begin_task(tasks[0])
    made.end_task(tasks[0])
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    state, before = made.state_dict(), weights(model)
    batch = tasks[1].examples.batch(np.arange(SIZE))
    loss = F.cross_entropy(model.label_scores(batch), batch.labels)
    for name, weight in model.named_parameters():
        loss = (
            loss + 1.5 * (state[f"importance/{name}"] * (weight - state[f"own/{name}"]) ** 2).sum()
        )
    loss.backward()
    wanted = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    model.zero_grad(set_to_none=True)
    update.read(batch)
    for name, grad in wanted.items():
        torch.testing.assert_close(
            (before[name] - weights(model)[name]) / 0.1, grad, rtol=1e-6, atol=1e-9
        )
