"""Truncated backpropagation through time: batches go on from each other, and a resumed run notices
nothing.
"""

import json
from functools import cache

import numpy as np
import pytest
import torch

from stages.methods import METHODS
from stages.methods.method import BatchLayout, Carried
from stages.training import checkpoint as saver
from stages.training.config import OptimizerConfig
from stages.training.journal import LINES
from stages.training.validate import validate
from tests.builders.carried_states import ENTRIES, LSTM, MODELS, SIGNAL, SLOTS, SRU, XL, seen_states
from tests.builders.training import Crash, Notes, crash_at, outcome, splits, trainer
from tests.stages.training.runs import Splits

STILL = {"optimizer": OptimizerConfig(lr=1e-12), "clip_norm": 0.0}
BACKBONES = pytest.mark.parametrize(
    "model", [LSTM, XL, SRU], ids=["lstm", "transformer-xl", "sru++"]
)
WITHIN = (12, 1)
"""A kill within an epoch that is not the first: (step, batches an update)."""
KILLS = [(name, *WITHIN) for name in MODELS] + [
    (
        "lstm",
        step,
        accumulate,
    )  # where epochs begin, and of how many batches an update is, no layer has a say
    for step in (3, 10, 12, 19)
    for accumulate in (1, 2)
    if (step, accumulate) != WITHIN
]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_each_row_goes_on_from_the_batch_before_and_begins_anew_with_the_epoch(
    accumulate, tmp_path, monkeypatch
):
    """300 tokens are 37 segments of 8: 4 streams of 9 segments, an epoch of 9 batches."""
    run = trainer(tmp_path, model=LSTM, steps=20 // accumulate, accumulate=accumulate)
    seen = seen_states(run, monkeypatch)
    run.train()
    stream = np.concatenate(([0], splits().train)).astype(np.int64)
    for number, (inputs, carried, _) in enumerate(seen):
        starts = [(row * 9 + number % 9) * 8 for row in range(4)]
        assert inputs.tolist() == [stream[start : start + 8].tolist() for start in starts]
        if number % 9 == 0:
            assert not carried.tensors()
        else:
            torch.testing.assert_close(carried.tensors(), seen[number - 1][2].tensors())
            assert not any(part.requires_grad for part in carried.tensors().values())
    assert len(seen) == 20


@BACKBONES
def test_the_loss_of_an_epoch_is_that_of_its_streams_read_in_one_piece(model, tmp_path):
    still = model.model_copy(update={"dropout": 0.0})
    run = trainer(tmp_path, model=still, steps=9, log_every=9, valid_every=0, **STILL)
    got = run.train().train_loss
    length = 9 * 8
    stream = torch.from_numpy(np.concatenate(([0], splits().train)).astype(np.int64))
    rows = torch.stack([stream[row * length : (row + 1) * length + 1] for row in range(4)])
    run.run.model.eval()
    with torch.no_grad():
        scores = run.run.model.log_probs(run.run.model.encode(rows[:, :-1]).hidden.flatten(0, 1))
    assert got == pytest.approx(
        -float(scores.gather(1, rows[:, 1:].reshape(-1, 1)).mean()), rel=1e-5
    )


@pytest.fixture(scope="module")
def of_one_piece(tmp_path_factory):
    """Gives what comes out of a run of a model that nobody interrupts; it runs once."""

    @cache
    def made(model, accumulate, steps):
        folder = tmp_path_factory.mktemp("whole")
        run = trainer(folder, model=model, accumulate=accumulate, steps=steps)
        run.train()
        return outcome(folder, run)

    return made


@pytest.mark.parametrize(("name", "step", "accumulate"), KILLS)
def test_a_run_killed_within_an_epoch_ends_with_the_same_bytes(
    name, step, accumulate, of_one_piece, tmp_path
):
    model = MODELS[name]
    steps = 20 if name == "lstm" else WITHIN[0] + 2
    changes = {"model": model, "accumulate": accumulate, "steps": steps}
    with pytest.raises(Crash):
        trainer(tmp_path, Notes(at=crash_at(step)), checkpoint_seconds=0, **changes).train()
    run = trainer(tmp_path, **changes)
    assert run.progress.step == step - 1
    run.train()
    assert outcome(tmp_path, run) == of_one_piece(model, accumulate, steps)


def test_a_resumed_run_that_dropped_what_was_carried_would_differ(tmp_path, monkeypatch):
    """The test above can fail: without the state in the checkpoint, other weights come out."""
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = trainer(tmp_path / "whole", model=LSTM)
    whole.train()
    with pytest.raises(Crash):
        trainer(
            tmp_path / "parts", Notes(at=crash_at(13)), checkpoint_seconds=0, model=LSTM
        ).train()
    load = saver.load_checkpoint
    monkeypatch.setattr(
        saver, "load_checkpoint", lambda *where: load(*where)._replace(carried=Carried())
    )
    run = trainer(tmp_path / "parts", model=LSTM)
    run.train()
    assert outcome(tmp_path / "parts", run)[0] != outcome(tmp_path / "whole", whole)[0]


def test_validation_reads_one_stream(tmp_path):
    run = trainer(tmp_path, model=LSTM)
    ids = splits().valid
    got = validate(run.run.fabric, run.run.model, run.run.method, run.run.valid, 8)
    stream = torch.from_numpy(np.concatenate(([0], ids)).astype(np.int64))[None]
    run.run.model.eval()
    with torch.no_grad():
        scores = run.run.model.log_probs(run.run.model.encode(stream[:, :-1]).hidden[0])
    assert got == pytest.approx(-float(scores.gather(1, stream[0, 1:, None]).mean()), rel=1e-5)


def test_a_method_that_carries_nothing_reads_shuffled_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(METHODS.load("lm"), "layout", lambda self, config: BatchLayout())
    run = trainer(tmp_path, model=LSTM, steps=3)
    seen = seen_states(run, monkeypatch)
    run.train()
    assert [carried for _, carried, _ in seen] == [Carried()] * 3
    assert seen[0][0].tolist() != [
        [0, *splits().train[:7]],
        *(splits().train[i - 1 : i + 7].tolist() for i in (72, 144, 216)),
    ]


def test_memory_ends_with_documents_in_training_and_validation(tmp_path, monkeypatch):
    """Every encoding is given how far back the own document of each position reaches."""
    whole = splits()
    data = Splits(whole.train, whole.valid, 0, np.array([0, 11, 150, 300]), np.array([0, 20, 37]))
    run, given = trainer(tmp_path, data=data, model=ENTRIES, steps=2, valid_every=0), []
    encode = run.run.model.backbone.forward

    def spy(inputs):
        given.append(inputs.document_offset)
        return encode(inputs)

    monkeypatch.setattr(run.run.model.backbone, "forward", spy)
    run.train()
    for number, back in enumerate(given[:2]):
        places = (np.arange(4) * 9 + number)[:, None] * 8 + np.arange(8)
        begins = np.array(
            [max(b for b in (0, 11, 150) if b <= place) for place in places.flat]
        ).reshape(4, 8)
        assert back.tolist() == (places - begins).tolist()
    assert torch.cat(given[2:], 1).tolist() == [[*range(20), *range(17)]]


def test_what_layers_add_to_the_loss_is_told_apart(tmp_path):
    lines = {}
    for name, model in (("plain", XL), ("slots", SLOTS), ("signal", SIGNAL)):
        (tmp_path / name).mkdir()
        trainer(tmp_path / name, model=model, steps=8, log_every=2).train()
        lines[name] = [
            json.loads(line) for line in (tmp_path / name / LINES).read_text().splitlines()
        ]
    assert not any("auxiliary_loss" in line for line in lines["plain"])
    assert all(
        0 < line["auxiliary_loss"] < line["loss"] for line in lines["slots"] + lines["signal"][1:]
    )
