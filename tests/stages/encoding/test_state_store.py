from pathlib import Path

import pytest
import torch

from stages.artifacts.output import ShardOutput, Written
from stages.encoding.carried_state import CarriedState
from stages.encoding.state_store import StateStore
from stages.encoding.window_settings import TokenRange

CPU = torch.device("cpu")
RANGES = [TokenRange(f"tune-{n}", 10 * n, 10 * n + 10) for n in range(4)]
BACKWARDS = RANGES[::-1]


def past(stop: int) -> CarriedState:
    """A state, that of another model, and ten positions, all told apart by the token behind them."""
    at = torch.tensor([float(stop)])
    return CarriedState(stop, {"h": at, "c": -at}, {"h": at / 3}, {"hidden": at.expand(10, 1)}, torch.arange(10))


def kept(states: StateStore, folder: Path, number: int, carried: CarriedState, idle: str | None = None) -> Written:
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
    assert {name: part.tolist() for name, part in found.state.items()} == {"h": [20.0], "c": [-20.0]}
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
    first, second = kept(states, tmp_path, 0, past(10)), kept(states, tmp_path, 1, past(20), idle="tune-0")
    assert list(first.files) == second.discarded == ["scratch/state-tune-0.safetensors"]
    assert list(second.files) == ["scratch/state-tune-1.safetensors"]


@pytest.mark.parametrize("idle", [None, "tune-0"])
def test_positions_alone_are_never_written(tmp_path, idle):
    states = StateStore(tmp_path, CPU)
    written = kept(states, tmp_path, 1, CarriedState(20, tokens=torch.arange(3)), idle)
    assert (written.files, written.discarded) == ({}, [])
    assert states.after("tune-1").tokens.tolist() == [0, 1, 2]
