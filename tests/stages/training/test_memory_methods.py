"""Methods that train with memory, through the loop: resumed runs, processes, batches."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stages.errors import DataError
from stages.methods import METHODS
from stages.methods.method import BatchIndex
from stages.methods.trime import with_other_ranks
from stages.models.backbones.stream_configs import LSTMConfig
from stages.models.language_model import LanguageModel
from stages.training import checkpoint as saver
from stages.training.checkpoint import best_weights
from tests.builders.carried_states import MODELS, seen_states
from tests.builders.training import (
    Crash,
    Notes,
    V,
    crash_at,
    journal,
    outcome,
    settings,
    splits,
    trainer,
)

LSTM = LSTMConfig(vocab_size=V, width=8, layers=2, dropout=0.3, initial_range=0.5)
MEMORIES = {
    "trime": {},
    "trime-long": {"consecutive": 2},
    "trime-ext": {"local_dropout": 0.5},
}


def changes(method, backbone, **more):
    model = LSTM if backbone == "lstm" else settings().model
    memory = MEMORIES[method] | {"key": model.reads.keys[0]}
    return {"method": method, "memory": memory, "model": model, **more}


@pytest.mark.parametrize(
    ("method", "backbone", "accumulate"),
    [
        ("trime", "transformer", 1),
        ("trime", "lstm", 2),
        ("trime-long", "transformer", 2),
        ("trime-long", "lstm", 1),
        ("trime-ext", "transformer", 1),
        ("trime-ext", "lstm", 2),
    ],
)
def test_a_killed_run_ends_with_the_same_bytes(method, backbone, accumulate, tmp_path):
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    how = changes(method, backbone, accumulate=accumulate, steps=14)
    whole = trainer(tmp_path / "whole", **how)
    whole.train()
    for step in (4, 9):
        with pytest.raises(Crash):
            trainer(
                tmp_path / "parts", Notes(at=crash_at(step)), checkpoint_seconds=0, **how
            ).train()
    run = trainer(tmp_path / "parts", **how)
    assert run.progress.step == 8
    run.train()
    assert outcome(tmp_path / "parts", run) == outcome(tmp_path / "whole", whole)


@pytest.mark.parametrize("kind", ["compressive", "sru++", "bottleneck"])
def test_trime_long_carries_what_layers_remember_beside_its_own_memory(kind, tmp_path, monkeypatch):
    model = MODELS[kind]
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    memory = {"consecutive": 2, "key": model.reads.keys[0]}
    how = {"method": "trime-long", "memory": memory, "model": model, "steps": 14}
    whole = trainer(tmp_path / "whole", **how)
    carried = ({*model.state_spec(8)}, {"keys", "values"})
    seen = seen_states(whole, monkeypatch)
    whole.train()
    epochs = [(set(), set()) if number % 9 == 0 else carried for number in range(14)]
    assert [({*(given.state or ())}, {*given.past}) for _, given, _ in seen] == epochs
    with pytest.raises(Crash):
        trainer(tmp_path / "parts", Notes(at=crash_at(6)), checkpoint_seconds=0, **how).train()
    run = trainer(tmp_path / "parts", **how)
    assert run.progress.step == 5
    run.train()
    assert outcome(tmp_path / "parts", run) == outcome(tmp_path / "whole", whole)


def test_a_resumed_run_that_forgot_the_segments_before_would_differ(tmp_path, monkeypatch):
    """The test above can fail: keys of the batch before are part of the checkpoint."""
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    how = changes("trime-long", "lstm")
    whole = trainer(tmp_path / "whole", **how)
    whole.train()
    with pytest.raises(Crash):
        trainer(tmp_path / "parts", Notes(at=crash_at(13)), checkpoint_seconds=0, **how).train()
    load = saver.load_checkpoint

    def without_memory(*where):
        saved = load(*where)
        emptied = {name: part[:, :0] for name, part in saved.carried.past.items()}
        return saved._replace(carried=saved.carried._replace(past=emptied))

    monkeypatch.setattr(saver, "load_checkpoint", without_memory)
    run = trainer(tmp_path / "parts", **how)
    run.train()
    assert outcome(tmp_path / "parts", run)[0] != outcome(tmp_path / "whole", whole)[0]


def read_slowly(model, ids, eos, stored=()):
    """-log p of each token, its memory being all before it and the pairs `stored`, in float64; and
    its own pairs.
    """
    losses, pairs = [], list(stored)
    for start in range(0, len(ids), 8):
        targets = ids[start : start + 8].astype(np.int64)
        inputs = np.concatenate(([ids[start - 1] if start else eos], targets[:-1])).astype(np.int64)
        seen = model.encode(torch.from_numpy(inputs[None]))
        log_p, log_z = model.log_prob(seen.hidden[0], torch.from_numpy(targets))
        for key, target, lp, lz in zip(
            seen.ffn_input[0], targets, log_p.tolist(), log_z.tolist(), strict=True
        ):
            scores = [(float(key @ other) / len(key) ** 0.5, value) for other, value in pairs]
            right = np.logaddexp.reduce(
                [lz + lp, *(score for score, value in scores if value == target)]
            )
            losses.append(np.logaddexp.reduce([lz, *(score for score, _ in scores)]) - right)
            pairs.append((key, target))
    return float(np.mean(losses)), pairs[len(stored) :]


@torch.no_grad()
def test_trime_ext_keeps_the_weights_that_read_valid_best_without_a_datastore(tmp_path):
    how, data, states = (
        changes("trime-ext", "transformer", steps=40, valid_every=8),
        splits(valid=40),
        {},
    )
    notes = Notes()
    run = trainer(tmp_path, notes, data, **how)
    notes.at = lambda step: states.update({step: copy.deepcopy(run.run.model.state_dict())})
    with torch.enable_grad():
        run.train()
    model, alone = LanguageModel(run.run.model.config).double().eval(), {}
    for line in journal(tmp_path):
        if line["valid_loss"] is not None:
            model.load_state_dict(states[line["step"]])
            alone[line["step"]], _ = read_slowly(model, data.valid, data.eos)
            assert line["valid_loss"] == pytest.approx(alone[line["step"]], abs=1e-4)
    kept = min(alone, key=alone.get)
    best = load_file(tmp_path / best_weights(kept))
    assert all(torch.equal(best[name], tensor) for name, tensor in states[kept].items())
    model.load_state_dict(best)
    _, stored = read_slowly(model, data.train, data.eos)
    assert (
        read_slowly(model, data.valid, data.eos, stored)[0] < alone[kept] - 0.1
    )  # what a datastore would make of it


@pytest.mark.parametrize("method", MEMORIES)
def test_memory_is_learnt_with(method, tmp_path):
    """The text repeats itself with a shift: whoever reads the memory knows what comes."""
    how = changes(method, "transformer", steps=60)
    how["model"] = how["model"].model_copy(update={"dropout": 0.0})
    progress = trainer(tmp_path, **how).train()
    assert progress.train_loss < 0.6 * np.log(V)
    assert progress.valid_loss < 0.9 * np.log(V)


def test_a_small_text_makes_batches_of_whole_runs(tmp_path):
    """Three segments of 8 tokens, where a batch of four was asked for."""
    how = changes("trime-long", "transformer", steps=2)
    notes = Notes()
    assert trainer(tmp_path, notes, data=splits(27), **how).batch_size == 2
    assert "2 segments" in notes.messages[0]
    with pytest.raises(DataError, match=r"\b3\b.*\b4\b"):
        trainer(tmp_path, data=splits(27), **how | {"memory": {"consecutive": 4}})


def test_documents_reach_the_batches(tmp_path):
    data = splits()
    data = type(data)(data.train, data.valid, data.eos, np.array([0, 19, 300]))
    run = trainer(tmp_path, data=data, **changes("trime-long", "transformer"))
    segments = np.arange(4)
    back = run.run.method.batch(run.run.tasks[0].examples, segments, BatchIndex(1, 1, 2, 0)).back
    assert back.flatten().tolist() == [*range(19), *range(13)]


def test_one_process_alone_gathers_nothing():
    keys = torch.zeros(3)
    assert with_other_ranks(keys) is keys  # which is what halves the products


def test_methods_are_found_by_name():
    of_text = {name for name in METHODS.names() if METHODS.settings(name).learns == "text"}
    assert of_text == {"lm", "memory-decoder", "mlp-memory", "spalm", "sparse-memory", *MEMORIES}
