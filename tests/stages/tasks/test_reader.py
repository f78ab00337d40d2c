"""Local adaptation and neighbours, beside steps written out by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from stages.errors import ArtifactError, UsageError
from stages.examples.examples import Batch
from stages.memory.episodic import nearest, squared_distances
from stages.models.backbone import Encoding
from stages.models.language_model import LanguageModel
from stages.tasks.answering import adapted
from stages.tasks.grammar import parse_reading
from stages.tasks.reader import Keys, Memory, StreamReader, document_keys
from stages.tasks.readings import AdaptedPart, Mbpa, NoReading, RandomAdaptation
from tests.stages.methods.stream.updates import model_for, stream


@pytest.mark.parametrize("weights", [None, (0.5, 0.2, 0.3)])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_steps_are_those_of_the_formula_and_leave_the_weights_behind_as_they_were(
    steps: int, weights: tuple[float, ...] | None
) -> None:
    model, _ = model_for("seq")
    batch = stream()[0].examples.batch(np.array([3, 1, 4]))
    own = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    wanted = {name: weight.clone() for name, weight in own.items()}
    for _ in range(steps):
        tensors = {name: weight.requires_grad_() for name, weight in wanted.items()}
        scores = torch.func.functional_call(
            _Scores(model), {f"model.{n}": w for n, w in tensors.items()}, (batch,)
        )
        each = [
            -scores[row].log_softmax(0)[label] for row, label in enumerate(batch.labels.tolist())
        ]
        loss = sum(weight * one for weight, one in zip(weights or [1 / 3] * 3, each, strict=True))
        loss = loss + 0.25 * sum(
            ((weight - own[name]) ** 2).sum() for name, weight in tensors.items()
        )
        gradients = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)
        wanted = {
            name: (weight - 0.1 * (0 if gradient is None else gradient)).detach()
            for (name, weight), gradient in zip(tensors.items(), gradients, strict=True)
        }
    settings, given = (
        Mbpa(k=3, steps=steps, lr=0.1, anchor=0.25),
        weights and torch.tensor(weights, dtype=torch.float64),
    )
    with adapted(model, [batch] * steps, settings, weights=given):
        for name, weight in model.named_parameters():
            torch.testing.assert_close(
                weight.detach(), wanted[name].detach(), rtol=1e-12, atol=1e-14
            )
    assert all(torch.equal(weight, own[name]) for name, weight in model.named_parameters())


@pytest.mark.parametrize(
    ("method", "part"), [("seq", "head"), ("anml-er", "head"), ("anml-er", "all")]
)
def test_the_part_that_is_named_adapts_but_no_gate_and_no_frozen_copy(
    method: str, part: AdaptedPart
) -> None:
    model, _ = model_for(method)
    batch = stream()[0].examples.batch(np.array([3, 1, 4]))
    own = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    with adapted(model, [batch], Mbpa(k=3, steps=1, lr=0.5), part):
        changed = {
            name for name, weight in model.named_parameters() if not torch.equal(weight, own[name])
        }
    assert changed >= {"head.weight", "head.bias"}
    assert not any(name.startswith(("frozen.", "head.modulator.")) for name in changed)
    assert any(name.startswith("backbone.") for name in changed) == (part == "all")


@pytest.mark.parametrize("method", ["seq", "anml-er"])
def test_where_the_head_alone_adapts_a_batch_is_encoded_once(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that are equal, but not the same, are read at every step: the weights are the same."""
    model, _ = model_for(method)
    examples, rows = stream()[0].examples, np.array([3, 1, 4])
    settings, computed, read = Mbpa(k=3, steps=4, lr=0.5, part="head"), [], LanguageModel.read

    def counted(self: LanguageModel, batch: Batch) -> Encoding:
        # A frozen copy is a model, too.
        computed.extend([batch] if self is model else [])
        return read(self, batch)

    monkeypatch.setattr(LanguageModel, "read", counted)
    once = examples.batch(rows)
    with adapted(model, [once] * 4, settings, "head"):
        weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    assert len(computed) == 1
    with adapted(model, [examples.batch(rows) for _ in range(4)], settings, "head"):
        assert all(torch.equal(weights[name], one) for name, one in model.named_parameters())
    assert len(computed) == 5


class _Scores(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: object) -> torch.Tensor:
        scores: torch.Tensor = self.model.label_scores(batch)
        return scores


def test_weights_come_back_after_an_error() -> None:
    model, _ = model_for("seq")
    before = [weight.detach().clone() for weight in model.parameters()]
    batch = stream()[0].examples.batch(np.array([0]))
    with pytest.raises(KeyError), adapted(model, [batch] * 2, Mbpa(steps=2, lr=0.5)):
        raise KeyError
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_keys_do_not_depend_on_what_is_read_together() -> None:
    model, _ = model_for("seq")
    examples = stream()[0].examples
    together = document_keys(model, examples, np.arange(20), "mean")
    alone = np.concatenate(
        [document_keys(model, examples, np.array([row]), "mean") for row in range(20)]
    )
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


def test_the_nearest_are_those_of_a_loop_and_ties_go_to_the_smaller_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    keys = np.repeat(random.normal(size=(10, 3)).astype(np.float32), 2, axis=0)
    query = random.normal(size=3).astype(np.float32)
    distances = [
        sum((float(a) - float(b)) ** 2 for a, b in zip(query, key, strict=True)) for key in keys
    ]
    np.testing.assert_allclose(squared_distances(query, keys), distances, rtol=1e-12)
    monkeypatch.setattr("stages.memory.episodic.KEYS_AT_ONCE", 7)
    np.testing.assert_allclose(squared_distances(query, keys), distances, rtol=1e-12)
    assert len(squared_distances(query, keys[:0])) == 0
    wanted = sorted(range(20), key=lambda row: (distances[row], row))[:5]
    assert nearest(squared_distances(query, keys), 5).tolist() == wanted


def test_an_adaptation_that_goes_astray_gives_no_answers() -> None:
    model, examples = model_for("seq")[0], stream()[0].examples
    reader = object.__new__(StreamReader)
    reader.model, reader.keys, reader.place = model, None, 1
    reader._artifact = SimpleNamespace(reference="model/m")
    reader.memory = Memory(examples, examples.chosen, np.zeros(examples.count, np.int64))
    assert (
        len(reader.answers(RandomAdaptation(name="random", k=3, steps=2), examples, np.arange(2)))
        == 2
    )
    astray = RandomAdaptation(name="random", k=3, steps=30, lr=1e9, anchor=1e9)
    with pytest.raises(UsageError, match=r"random:.*lr=1e\+09"):
        reader.answers(astray, examples, np.arange(2))
    assert (
        len(reader.answers(NoReading(), examples, np.arange(2))) == 2
    )  # the weights are those of before
    with torch.no_grad():
        next(model.head.parameters()).fill_(torch.nan)
    for reading in (NoReading(), astray):
        with pytest.raises(ArtifactError, match="model/m"):
            reader.answers(reading, examples, np.arange(2))


@pytest.mark.parametrize(
    "reading", ["mbpa:k=3,steps=2,lr=0.5", "random:k=3,steps=2,lr=0.5", "episodic:k=3,weight=1"]
)
def test_a_document_of_memory_does_not_find_itself(
    reading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read for it is as if it had not been written."""
    model, examples = model_for("seq")[0], stream()[0].examples
    reader = object.__new__(StreamReader)
    reader.model, reader.place = model, 1
    keys = document_keys(model, examples, np.arange(examples.count), "mean")
    reader.keys = Keys(model, examples.cutting.context, "mean", keys)
    seen = list[np.ndarray]()
    for module in ("reader", "answering"):
        monkeypatch.setattr(
            f"stages.tasks.{module}.best_labels",
            lambda found, among: seen.extend(found) or [0] * len(found),
        )

    def read(rows: list[int], which: list[int], inside: bool) -> np.ndarray:
        reader.memory = Memory(examples, np.array(rows), np.zeros(len(rows), np.int64))
        seen.clear()
        reader.answers(parse_reading(reading), examples, np.array(which), inside=inside)
        return np.array(seen)

    found = read([2, 5, 7, 9], [5, 0, 9], inside=True)
    wanted = [
        read(rows, [one], inside=False)[0]
        for rows, one in (([2, 7, 9], 5), ([2, 5, 7, 9], 0), ([2, 5, 7], 9))
    ]
    np.testing.assert_array_equal(found, wanted)
    assert (found != read([2, 5, 7, 9], [5, 0, 9], inside=False)).any(1).tolist() == [
        True,
        False,
        True,
    ]
    assert (read([5], [5], inside=True) == read([], [5], inside=False)).all(), (
        "alone with itself there is no memory"
    )


def test_neighbors_are_interpolated_as_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """p(y) = λ p_mem(y) + (1 - λ) p(y | x); p_mem is the share of exp(-d² / τ) of the k nearest
    with the label y.
    """
    model, examples = model_for("seq")[0], stream()[0].examples
    reader, seen = object.__new__(StreamReader), list[np.ndarray]()
    reader.model, reader.place, rows, k, temperature, weight = (
        model,
        1,
        [2, 5, 7, 9, 11],
        3,
        0.7,
        0.3,
    )
    keys = document_keys(model, examples, np.arange(examples.count), "mean")
    reader.keys = Keys(model, examples.cutting.context, "mean", keys)
    reader.memory = Memory(examples, np.array(rows), np.zeros(len(rows), np.int64))
    for module in ("reader", "answering"):
        monkeypatch.setattr(
            f"stages.tasks.{module}.best_labels",
            lambda found, among: seen.extend(found) or [0] * len(found),
        )
    reader.answers(
        parse_reading(f"episodic:k={k},temperature={temperature},weight={weight}"),
        examples,
        np.arange(2),
    )
    for document, found in enumerate(seen):
        batch = examples.batch(np.array([document]))
        distances = {
            row: sum(
                (float(a) - float(b)) ** 2 for a, b in zip(keys[document], keys[row], strict=True)
            )
            for row in rows
        }
        near = sorted(rows, key=lambda row: (distances[row], row))[:k]
        shares = {row: math.exp(-distances[row] / temperature) for row in near}
        wanted = (1 - weight) * model.label_scores(batch)[0].softmax(0).detach().numpy()
        for row in near:
            wanted[examples.labels[row]] += weight * shares[row] / sum(shares.values())
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
