import math
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from memlm_cli.progress import Work
from stages.errors import ArtifactError, UsageError
from stages.examples.windows import windows
from stages.interrupts import Terminated
from stages.methods.method import Carried, Loss
from stages.models.computing import random_state
from stages.training import checkpoint
from stages.training.checkpoint import RankState, best_weights, load_checkpoint, save_checkpoint
from stages.training.config import OptimizerConfig
from stages.training.training_data import _token_counts
from stages.training.validate import validate
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


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run = trainer(folder)
    run.train()
    return outcome(folder, run)


def test_speed_and_time_left_follow_one_estimate(tmp_path, monkeypatch):
    """Steps of a second, then of three: at any time, what is left takes as long as the speed says."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        "stages.training.journal.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    left, told = Work(1, 20, "steps", lambda: clock.now), []

    class Watched(Notes):
        def progress(self, done, total, unit, **figures):
            left.report(done, figures)
            told.append((figures.get("tokens_per_second"), left._left, 32 * (total - done)))
            clock.now += 1.0 if done < 10 else 3.0

    trainer(tmp_path, Watched()).train()
    assert told[0][0] is None and len(told) == 20
    for speed, seconds, tokens in told[1:]:
        assert speed * seconds == pytest.approx(tokens)
    assert told[-1][0] == pytest.approx(32 * 19 / (9 + 10 * 3))


def test_loss_falls(tmp_path):
    run = trainer(tmp_path, steps=60, model=settings().model.model_copy(update={"dropout": 0.0}))
    progress = run.train()
    assert progress.train_loss < 0.6 * math.log(V)
    assert progress.valid_loss < 0.6 * math.log(V)


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "sgd"])
def test_an_interrupted_run_ends_with_the_same_bytes(name, tmp_path):
    optimizer = OptimizerConfig(name=name, lr=0.02)
    (tmp_path / "whole").mkdir()
    whole = trainer(tmp_path / "whole", optimizer=optimizer)
    whole.train()
    folder = tmp_path / "parts"
    folder.mkdir()
    for stop_at in (5, 6, 13):
        notes = Notes(at=lambda step, n=stop_at: step == n and os.kill(os.getpid(), signal.SIGINT))
        run = trainer(folder, notes, optimizer=optimizer)
        with pytest.raises(KeyboardInterrupt):
            run.train()
    run = trainer(folder, optimizer=optimizer)
    run.train()
    assert outcome(folder, run) == outcome(tmp_path / "whole", whole)


@pytest.mark.parametrize("step", [2, 7, 12, 19])
def test_a_killed_run_goes_on_from_its_last_checkpoint(step, uninterrupted, tmp_path):
    with pytest.raises(Crash):
        trainer(tmp_path, Notes(at=crash_at(step)), checkpoint_seconds=0).train()
    notes = Notes()
    run = trainer(tmp_path, notes)
    run.train()
    assert notes.messages[0] == f"resumed: {step - 1} of 20 steps"
    assert notes.steps == list(range(step, 21))
    assert outcome(tmp_path, run) == uninterrupted


def test_validation_keeps_a_checkpoint_of_what_did_best(uninterrupted, tmp_path):
    with pytest.raises(Crash):
        trainer(tmp_path, Notes(at=crash_at(8))).train()
    assert (tmp_path / "best-6.safetensors").is_file()
    run = trainer(tmp_path)
    assert run.progress.step == 6
    run.train()
    assert outcome(tmp_path, run) == uninterrupted
    assert len(list(tmp_path.glob("best-*"))) == 1


def test_the_best_weights_are_on_disk_before_a_checkpoint_speaks_of_them(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(checkpoint, "fsync", lambda path: order.append(path.name))
    monkeypatch.setattr(
        checkpoint, "save_checkpoint", lambda path, *state: order.append(state[-2]["valid_step"])
    )
    trainer(tmp_path, steps=6, valid_every=3).train()
    assert order[:3] == ["best-3.safetensors", tmp_path.name, 3]


@pytest.mark.parametrize("file", ["best", "training.jsonl"])
@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_what_a_checkpoint_speaks_of_is_used_as_it_was_saved_or_not_at_all(tmp_path, file, damage):
    run = trainer(tmp_path, steps=6, valid_every=3)
    run.train()
    victim = tmp_path / (best_weights(run.progress.valid_step) if file == "best" else file)
    content = victim.read_bytes()
    victim.unlink()
    if damage == "flipped":
        victim.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
    with pytest.raises(ArtifactError, match=victim.name):
        trainer(tmp_path, steps=6, valid_every=3)


def test_a_finished_run_does_no_step_again(tmp_path):
    first = trainer(tmp_path)
    first.train()
    notes = Notes()
    second = trainer(tmp_path, notes)
    second.train()
    assert len(notes.messages) == 1 and "20 of 20" in notes.messages[0]
    assert notes.steps == []
    assert outcome(tmp_path, second) == outcome(tmp_path, first)


def test_accumulated_batches_make_the_update_of_one_large_batch(tmp_path):
    """Without dropout, 2 x 32 tokens move the weights as 64 tokens do."""
    model = settings().model.model_copy(update={"dropout": 0.0})
    for name, changes in {"a": {"batch_tokens": 64}, "b": {"accumulate": 2}}.items():
        (tmp_path / name).mkdir()
        run = trainer(
            tmp_path / name, model=model, steps=2, optimizer=OptimizerConfig(name="sgd"), **changes
        )
        run.train()
        torch.save(run.run.model.state_dict(), tmp_path / f"{name}.pt")
    a, b = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in "ab")
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_sigterm_saves_between_steps(tmp_path):
    with pytest.raises(Terminated):
        trainer(
            tmp_path, Notes(at=lambda step: step == 3 and os.kill(os.getpid(), signal.SIGTERM))
        ).train()
    assert trainer(tmp_path).progress.step == 3


def test_a_loss_that_is_no_number_says_where_and_what_to_try(tmp_path):
    run = trainer(tmp_path, optimizer=OptimizerConfig(name="sgd", lr=1e30), clip_norm=0.0)
    with pytest.raises(UsageError, match=r"(nan|inf).*\b20\b.*--lr"):
        run.train()


def test_losses_read_later_are_the_same_in_the_journal_and_after_an_interruption(
    tmp_path, uninterrupted
):
    """As on a GPU, where the host is an update ahead."""
    with pytest.raises(Crash):
        behind(tmp_path, Notes(at=crash_at(11)), checkpoint_seconds=0).train()
    run = behind(tmp_path)
    assert run.progress.loss_count == 10 - 8
    run.train()
    assert outcome(tmp_path, run) == uninterrupted


def test_a_loss_that_is_read_later_ends_the_run_at_its_step_and_is_not_saved(tmp_path):
    run = behind(tmp_path, steps=4, log_every=50)
    made = iter([1.0, 2.0, math.nan, 3.0])
    run.run.method.loss = lambda model, batch, carried: Loss(
        next(made) * model.vocabulary.embed(batch.inputs).sum()
    )
    with pytest.raises(UsageError, match=r"nan.*\b3\b.*\b4\b"):
        run.train()
    assert not (tmp_path / "checkpoint.safetensors").exists()


def behind(folder, notes=None, checkpoint_seconds=1e9, **changes):
    run = trainer(folder, notes, checkpoint_seconds=checkpoint_seconds, **changes)
    run.loss_lag = 2
    return run


def test_journal_has_every_figure(tmp_path):
    trainer(tmp_path).train()
    lines = journal(tmp_path)
    assert [line["step"] for line in lines] == [4, 6, 8, 12, 16, 18, 20]
    assert [line["step"] for line in lines if line["valid_loss"] is not None] == [6, 12, 18, 20]
    assert lines[-1]["tokens"] == 20 * 32
    assert lines[-1]["learning_rate"] == pytest.approx(0.002)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_journal_tells_how_many_documents_an_update_reads(accumulate, tmp_path):
    """On average since the line before, also by a run that was interrupted; segments of 8 tokens,
    documents of 12.
    """
    data = replace(splits(), documents=np.arange(0, 301, 12))
    with pytest.raises(Crash):
        trainer(
            tmp_path, Notes(at=crash_at(11)), data, checkpoint_seconds=0, accumulate=accumulate
        ).train()
    run = trainer(tmp_path, data=data, accumulate=accumulate)
    run.train()
    batches = np.concatenate([run.run.method.order(300 // 8, 4, 0, epoch) for epoch in range(5)])
    counts = [
        len({token // 12 for segment in update for token in range(8 * segment, 8 * segment + 8)})
        for update in batches[: 20 * accumulate].reshape(20, -1).tolist()
    ]
    lines = journal(tmp_path)
    for before, line in zip([{"step": 0}, *lines], lines, strict=False):
        assert line["documents"] == pytest.approx(
            np.mean(counts[before["step"] : line["step"]]), abs=0.051
        )


def test_validation_scores_every_token_once(tmp_path):
    run = trainer(tmp_path)
    ids = splits().valid
    got = validate(run.run.fabric, run.run.model, run.run.method, run.run.valid, 8)
    stream = np.concatenate(([0], ids)).astype(np.int64)
    run.run.model.eval()
    total = 0.0
    for window in windows(len(ids), 8, 8):
        inputs = torch.from_numpy(stream[window.start : window.stop])[None]
        log_probs = run.run.model.log_probs(run.run.model.encode(inputs).hidden[0])
        targets = torch.from_numpy(stream[window.start + 1 : window.stop + 1])
        total -= log_probs.gather(1, targets[:, None]).sum().item()
    assert got == pytest.approx(total / len(ids), rel=1e-5)


def test_without_a_validation_split_there_is_none(tmp_path):
    run = trainer(tmp_path, data=splits(valid=0))
    assert run.train().valid_loss is None
    assert not list(tmp_path.glob("best-*"))


def test_a_short_split_makes_smaller_batches_and_says_so(tmp_path):
    notes = Notes()
    run = trainer(tmp_path, notes, data=splits(tokens=20))
    assert run.order.update_tokens == 16
    assert "2 segments" in notes.messages[0]
    run.train()


def test_ranks_follow_the_counts_of_the_training_split():
    counts = _token_counts(splits().train, V)
    assert counts.tolist() == np.bincount(splits().train, minlength=V).tolist()


def test_checkpoint_holds_no_pickle(tmp_path):
    with pytest.raises(Crash):
        trainer(tmp_path, Notes(at=crash_at(7))).train()
    tensors = load_file(tmp_path / "checkpoint.safetensors")
    assert "model/vocabulary.rank" in tensors
    assert "random/0/cpu" in tensors
    assert any(name.startswith("optimizer/0/") for name in tensors)


def test_a_checkpoint_serves_ranks_that_were_not_there(tmp_path):
    """Their random numbers are their own, and streams that are shared otherwise carry nothing."""
    path, model = tmp_path / "checkpoint", torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    carried = Carried({"h": torch.ones(1, 4, 2)}, {"keys": torch.zeros(1, 4, 2)})
    save_checkpoint(path, model, optimizer, [RankState(random_state(), carried)], {"step": 3}, {})
    torch.manual_seed(5)
    own = torch.get_rng_state()
    assert load_checkpoint(path, model, optimizer, rank=1, ranks=2) == ({"step": 3}, Carried(), {})
    assert torch.equal(torch.get_rng_state(), own)
    assert load_checkpoint(path, model, optimizer, rank=0, ranks=2)[1] == Carried()
    assert not torch.equal(torch.get_rng_state(), own)
    torch.testing.assert_close(
        load_checkpoint(path, model, optimizer).carried.tensors(), carried.tensors()
    )
