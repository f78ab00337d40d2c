"""State that goes from shard to shard, in memory and on disk."""

from pathlib import Path

import pytest
import torch

from stages.artifacts.output import ShardOutput, Written
from stages.encoding.carried_state import CarriedState, StateStore
from stages.encoding.scoring import LMScores
from stages.encoding.window_settings import TokenRange


def scores(start: int, stop: int) -> LMScores:
    """Tokens that are their positions, and keys that are their positions and their negatives."""
    at = torch.arange(start, stop)
    keys = {"hidden": at[:, None].float(), "ffn-input": -at[:, None].float()}
    return LMScores(start, at, at.float(), at.float(), keys, {}, None, {"at": torch.tensor(stop)})


def test_the_past_reaches_as_far_back_as_was_asked_across_ranges():
    carried = CarriedState()
    for start, stop in ((0, 4), (4, 5), (5, 12)):
        carried = carried.after(scores(start, stop), 6, {"hidden"}, {"at": torch.tensor(-stop)})
        first = max(0, stop - 6)
        assert carried.start == stop
        assert carried.tokens.tolist() == list(range(first, stop))
        assert carried.keys.keys() == {"hidden"}
        assert carried.keys["hidden"][:, 0].tolist() == list(range(first, stop))
        assert (carried.state, carried.encoder_state) == (
            {"at": torch.tensor(stop)},
            {"at": torch.tensor(-stop)},
        )


def test_without_a_reach_states_alone_are_carried():
    carried = CarriedState(7).after(scores(7, 9), 0, {"hidden"})
    assert (carried.start, carried.keys, carried.tokens) == (9, {}, None)
    assert carried.state == {"at": torch.tensor(9)}


def test_a_range_follows_the_past_without_a_gap():
    carried = CarriedState().after(scores(0, 4), 3, {"ffn-input"})
    assert carried.joined_tokens(scores(4, 6)).tolist() == [1, 2, 3, 4, 5]
    assert carried.joined_keys(scores(4, 6), "ffn-input")[:, 0].tolist() == [-1, -2, -3, -4, -5]
    with pytest.raises(AssertionError):
        carried.after(scores(5, 6), 3, {"ffn-input"})


def test_what_is_carried_is_no_view_of_what_was_scored():
    """A view would keep the keys of a whole range in memory for the last few."""
    one = scores(0, 100)
    carried = CarriedState().after(one, 2, {"hidden"})
    assert carried.keys["hidden"].untyped_storage().nbytes() == 2 * 4
    assert carried.tokens.untyped_storage().nbytes() == 2 * 8


CPU = torch.device("cpu")
RANGES = [TokenRange(f"tune-{n}", 10 * n, 10 * n + 10) for n in range(4)]
BACKWARDS = RANGES[::-1]


def past(stop: int) -> CarriedState:
    """A state, that of another model, and ten positions, all told apart by the token behind them."""
    at = torch.tensor([float(stop)])
    return CarriedState(
        stop, {"h": at, "c": -at}, {"h": at / 3}, {"hidden": at.expand(10, 1)}, torch.arange(10)
    )


def kept(
    states: StateStore, folder: Path, number: int, carried: CarriedState, idle: str | None = None
) -> Written:
    output = ShardOutput(folder)
    states.keep(output, RANGES[number].key, carried, idle)
    return output.written(RANGES[number].key)


def test_the_latest_of_this_run_is_handed_on_as_it_is(tmp_path):
    states, carried = StateStore(tmp_path, CPU), past(20)
    kept(states, tmp_path, 0, past(10))
    kept(states, tmp_path, 1, carried)
    assert states.after("tune-1") is carried
    assert states.after("tune-0") is None
    assert states.latest(BACKWARDS[2:]) == (carried, [])


def test_another_run_finds_the_states_but_no_positions(tmp_path):
    kept(StateStore(tmp_path, CPU), tmp_path, 1, past(20))
    states = StateStore(tmp_path, CPU)
    assert states.after("tune-1") is None
    found, lost = states.latest(BACKWARDS)
    assert lost == RANGES[2:]
    assert (found.start, found.keys, found.tokens) == (20, {}, None)
    assert {name: part.tolist() for name, part in found.state.items()} == {
        "h": [20.0],
        "c": [-20.0],
    }
    torch.testing.assert_close(found.encoder_state, {"h": torch.tensor([20.0]) / 3}, rtol=0, atol=0)


def test_where_nothing_is_left_all_is_to_be_read_from_the_start(tmp_path):
    assert StateStore(tmp_path, CPU).latest(BACKWARDS) == (CarriedState(), RANGES)
    assert StateStore(tmp_path, CPU).latest([]) == (CarriedState(), [])


def test_no_more_ranges_are_looked_at_than_must_be(tmp_path):
    kept(StateStore(tmp_path, CPU), tmp_path, 2, past(30))
    looked = iter(BACKWARDS)
    _, lost = StateStore(tmp_path, CPU).latest(looked)
    assert lost == [RANGES[3]]
    assert next(looked) is RANGES[1]


def test_states_that_no_run_needs_are_discarded_with_the_commit_of_the_next(tmp_path):
    states = StateStore(tmp_path, CPU)
    first, second = (
        kept(states, tmp_path, 0, past(10)),
        kept(states, tmp_path, 1, past(20), idle="tune-0"),
    )
    assert list(first.files) == second.discarded == ["scratch/state-tune-0.safetensors"]
    assert list(second.files) == ["scratch/state-tune-1.safetensors"]


@pytest.mark.parametrize("idle", [None, "tune-0"])
def test_positions_alone_are_never_written(tmp_path, idle):
    states = StateStore(tmp_path, CPU)
    written = kept(states, tmp_path, 1, CarriedState(20, tokens=torch.arange(3)), idle)
    assert (written.files, written.discarded) == ({}, [])
    assert states.after("tune-1").tokens.tolist() == [0, 1, 2]


def test_states_of_side_models_come_back_from_the_disk(tmp_path: Path) -> None:
    sides = {"0a": {"h": torch.ones(1, 2), "memory/keys": torch.zeros(3)}, "0b": None}
    after = CarriedState(10, {"at": torch.tensor(10)}, side_states=sides)
    output = ShardOutput(tmp_path)
    StateStore(tmp_path, CPU).keep(output, "tune-0", after)
    carried, lost = StateStore(tmp_path, CPU).latest(BACKWARDS[3:])
    assert lost == [] and carried.side_states.keys() == {"0a"}
    assert carried.state["at"] == 10
    for name, tensor in sides["0a"].items():
        assert torch.equal(carried.side_states["0a"][name], tensor)
