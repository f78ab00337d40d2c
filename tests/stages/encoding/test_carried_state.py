import pytest
import torch

from stages.encoding.carried_state import CarriedState
from stages.encoding.scoring import LMScores


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
        assert (carried.state, carried.encoder_state) == ({"at": torch.tensor(stop)}, {"at": torch.tensor(-stop)})


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
