"""Training from neighbours through the loop: a killed run, and a gate that is trained alone."""

import numpy as np
import pytest
import torch

from stages.methods import METHODS
from stages.models.backbones.stream_configs import TransformerXLConfig
from tests.builders.carried_states import ENTRIES, SIGNAL, SLOTS
from tests.builders.training import Crash, Notes, V, crash_at, outcome, settings, splits
from tests.stages.training.runs import trainer_of

XL = TransformerXLConfig(
    vocab_size=V,
    layers=1,
    width=8,
    heads=2,
    ffn_width=16,
    segment_length=8,
    mem_length=12,
    cutoffs=(4, 8),
    factor=2,
)


def given(data):
    """Two neighbours a token: one holds the token five places on, the other any or none."""
    random = np.random.default_rng(3)
    made = {}
    for name, ids in {"train": data.train, "valid": data.valid}.items():
        right = np.roll(ids, -5).astype(np.int32)
        made[name] = np.stack((right, random.integers(-1, V, len(ids))), 1).astype(np.int32)
    return {"neighbors": made}


def trainer(folder, notes=None, checkpoint_seconds=1e9, model=XL, **changes):
    changes = {"memory": {"k": 2}} | changes
    config = settings(method="spalm", model=model.model_copy(update={"gate": "vector"}), **changes)
    method = METHODS.load("spalm")(config.method_settings, given(splits()))
    return trainer_of(config, method, splits(), folder, notes or Notes(), checkpoint_seconds)


@pytest.mark.parametrize(
    "model",
    [XL, SLOTS, ENTRIES, SIGNAL],
    ids=["transformer-xl", "compressive", "memorizing", "infinity"],
)
def test_a_killed_run_ends_with_the_same_bytes(model, tmp_path):
    changes = {"model": model, "steps": 14, "memory": {"k": 2, "neighbor_dropout": 0.5}}
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = trainer(tmp_path / "whole", **changes)
    whole.train()
    for step in (4, 9):
        with pytest.raises(Crash):
            trainer(tmp_path / "parts", Notes(at=crash_at(step)), 0, **changes).train()
    run = trainer(tmp_path / "parts", **changes)
    assert run.progress.step == 8
    run.train()
    assert outcome(tmp_path / "parts", run) == outcome(tmp_path / "whole", whole)


def test_neighbours_are_left_out_of_training_and_of_no_validation(tmp_path, monkeypatch):
    run = trainer(tmp_path, memory={"k": 2, "neighbor_dropout": 0.9}, steps=4, valid_every=2)
    gated, left_out = run.run.model.gated, {True: [], False: []}

    def spy(hidden, neighbors):
        left_out[run.run.model.training].append((neighbors == -1).all(1).double().mean().item())
        return gated(hidden, neighbors)

    monkeypatch.setattr(run.run.model, "gated", spy)
    run.train()
    assert len(left_out[True]) == 4 and min(left_out[True]) > 0.5
    assert set(left_out[False]) == {0.0}


def test_only_the_gate_moves_where_that_is_asked_for(tmp_path):
    run = trainer(tmp_path, memory={"k": 2, "only_gate": True}, steps=4)
    before = {name: tensor.clone() for name, tensor in run.run.model.state_dict().items()}
    run.train()
    moved = {
        name
        for name, tensor in run.run.model.state_dict().items()
        if not torch.equal(tensor, before[name])
    }
    assert moved == {"gate.weight"}


@pytest.mark.parametrize("only_gate", [True, False])
def test_what_is_frozen_is_read_without_dropout(only_gate, tmp_path, monkeypatch):
    """V is learnt on the hidden states that it is evaluated on; a validation every second step
    changes nothing.
    """
    run = trainer(tmp_path, memory={"k": 2, "only_gate": only_gate}, steps=6, valid_every=2)
    loss, same = run.run.method.loss, []

    def spy(model, batch, carried):
        first, second = (model.read(batch, carried.state) for _ in range(2))
        same.append(
            torch.equal(first.hidden, second.hidden)
            and all(torch.equal(part, second.state[name]) for name, part in first.state.items())
        )
        return loss(model, batch, carried)

    monkeypatch.setattr(run.run.method, "loss", spy)
    run.train()
    assert same == [only_gate] * 6
    assert run.run.model.gate.training
    assert [part.training for part in (run.run.model.backbone, run.run.model.vocabulary)] == [
        not only_gate
    ] * 2
