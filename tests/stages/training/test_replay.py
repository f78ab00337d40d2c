"""Memory replay: gradients of back-propagation through time, to the last digits of float64, dropout
on.
"""

import pytest
import torch
from lightning_fabric import Fabric

from stages.errors import UsageError
from stages.models.backbones.stream_configs import MemformerConfig
from stages.models.computing import random_state
from stages.training import replay
from stages.training.loop import plain_step
from tests.builders.training import Crash, Notes, V, crash_at, outcome, trainer

MODEL = MemformerConfig(
    vocab_size=V,
    width=8,
    heads=2,
    ffn_width=8,
    layers=1,
    encoder_layers=1,
    slots=3,
    segment_length=8,
    dropout=0.3,
)


def run(folder, steps, **changes):
    torch.manual_seed(5)
    made = trainer(
        folder,
        **{"model": MODEL, "accumulate": steps, "clip_norm": 0.0, "valid_every": 0, **changes},
    )
    made.run.model.double()
    return made.updates


def gradients_of(updates, step, monkeypatch):
    found = {}

    def keep():
        named = updates._run.model.named_parameters()
        found.update(
            {name: weight.grad.clone() for name, weight in named if weight.grad is not None}
        )
        updates.optimizer.zero_grad(set_to_none=True)

    monkeypatch.setattr(updates, "change_weights", keep)
    return (
        float(step(updates)),
        found,
        {name: part.detach() for name, part in updates.carried.tensors().items()},
    )


@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("method", ["lm", "trime-long"])
def test_gradients_are_those_of_back_propagation_through_time(steps, method, tmp_path, monkeypatch):
    """Through time every batch is given the seed that it has in the replay."""
    for name in ("replay", "time"):
        (tmp_path / name).mkdir()
    changes = (
        {"method": method} if method == "lm" else {"method": method, "memory": {"consecutive": 2}}
    )
    replayed, through_time = (run(tmp_path / name, steps, **changes) for name in ("replay", "time"))
    assert replayed.replays and through_time.keeps_graph
    torch.manual_seed(7)
    got = gradients_of(replayed, replay.replay_step, monkeypatch)
    torch.manual_seed(7)
    seeds, slow = torch.randint(1 << 62, (steps,)).tolist(), through_time.loss_from

    def as_replayed(*given):
        torch.manual_seed(seeds.pop(0))
        return slow(*given)

    monkeypatch.setattr(through_time, "loss_from", as_replayed)
    want = gradients_of(through_time, plain_step, monkeypatch)
    assert got[0] == pytest.approx(want[0], rel=1e-14)
    assert got[1].keys() == want[1].keys() and any("writer" in name for name in got[1])
    for name, gradient in want[1].items():
        torch.testing.assert_close(got[1][name], gradient, rtol=1e-11, atol=1e-15)
    torch.testing.assert_close(got[2], want[2], rtol=1e-12, atol=1e-14)


def test_several_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Fabric, "world_size", 2)
    with pytest.raises(UsageError):
        run(tmp_path, 2)


def test_each_segment_has_random_numbers_of_its_own(tmp_path, monkeypatch):
    updates = run(tmp_path, 3)
    seen, loss_from = [], updates.loss_from
    monkeypatch.setattr(
        updates, "loss_from", lambda *given: seen.append(random_state()["cpu"]) or loss_from(*given)
    )
    for updates.number in range(2):
        replay.replay_step(updates)
    assert len(seen) == 6
    assert not any(torch.equal(a, b) for n, a in enumerate(seen) for b in seen[:n])


def test_where_streams_begin_anew_within_an_update_no_gradient_goes_back(tmp_path, monkeypatch):
    """300 tokens are 9 segments of 4 streams: the tenth batch is the first of another epoch."""
    updates = run(tmp_path, 3)
    asked, loss_from = [], updates.loss_from

    def spy(batch, before):
        asked.append(before.tensors().get("state/memory"))
        return loss_from(batch, before)

    monkeypatch.setattr(updates, "loss_from", spy)
    for updates.number in range(4):
        replay.replay_step(updates)
    late, middle, first = asked[9:]
    assert first is None and middle.requires_grad and late.requires_grad
    assert [memory is None or memory.requires_grad for memory in asked[:9]] == [
        True,
        True,
        True,
    ] + [
        True,
        True,
        False,
    ] * 2


def test_a_run_killed_ends_with_the_same_bytes(tmp_path):
    changes = {"model": MODEL, "accumulate": 4, "steps": 4, "valid_every": 0}
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = trainer(tmp_path / "whole", **changes)
    whole.train()
    with pytest.raises(Crash):
        trainer(tmp_path / "parts", Notes(at=crash_at(3)), checkpoint_seconds=0, **changes).train()
    resumed = trainer(tmp_path / "parts", **changes)
    assert resumed.progress.step == 2
    resumed.train()
    assert outcome(tmp_path / "parts", resumed) == outcome(tmp_path / "whole", whole)


def test_it_learns_across_segments_what_one_alone_does_not_show(tmp_path):
    """The writer has a gradient where an update reads two segments, and none where it reads one."""
    for steps in (1, 2):
        (tmp_path / str(steps)).mkdir()
        updates = run(tmp_path / str(steps), steps)
        writer = updates._run.model.backbone.writer
        before = writer.value.weight.detach().clone()
        for updates.number in range(3):
            (replay.replay_step if updates.replays else plain_step)(updates)
        assert torch.equal(writer.value.weight, before) == (steps == 1)
