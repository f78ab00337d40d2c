"""Text up to a stop string, whatever tokens it comes in, against a search in the whole text."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stages.generation.stopping import StoppedText, longest_beginning


class Letters:
    """A stream whose tokens are places between two cuts of a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def add(self, piece: str) -> str:
        return piece

    def end(self) -> str:
        return self.text


LETTERS = st.text("ab\n", max_size=12)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3)


@given(LETTERS, STOPS, st.sets(st.integers(1, 11)), LETTERS)
def test_nothing_of_a_stop_string_is_given_out(text, stops, cuts, rest):
    whole = text + rest
    stopped = StoppedText.__new__(StoppedText)
    stopped._stream, stopped._stops = Letters(rest), stops
    stopped._held, stopped.stopped = "", False
    borders = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    given_out = ""
    for start, stop in pairwise(borders):
        given_out += stopped.add(text[start:stop])
        if stopped.stopped:
            break
    given_out += stopped.end()
    places = [whole.find(stop) for stop in stops if stop in whole]
    if not places:
        assert given_out == whole
        return
    # Pieces end at their borders: the first stop string that is complete counts.
    assert given_out == whole[: len(given_out)]
    assert not any(stop in given_out for stop in stops)
    assert min(places) >= len(given_out) or len(given_out) in places


def test_what_may_become_a_stop_string_is_held_back():
    assert longest_beginning("ab", ["bcd"]) == 1
    assert longest_beginning("abab", ["aba", "abac"]) == 2
    assert longest_beginning("ab", []) == 0
    assert longest_beginning("ab", ["ab"]) == 0
