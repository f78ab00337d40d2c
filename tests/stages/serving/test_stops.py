"""Text that is held back where a string that ends it may begin."""

from hypothesis import given
from hypothesis import strategies as st

from stages.serving.stops import GrowingText

LETTERS = st.text("ab", max_size=4)


@given(st.lists(LETTERS, max_size=8), st.lists(LETTERS.filter(len), max_size=3))
def test_the_text_ends_before_the_first_string_that_is_complete(
    parts: list[str], stops: list[str]
) -> None:
    growing, given_out, whole = GrowingText(stops), "", ""
    for part in parts:
        whole += part
        given_out += growing.add(part)
        # The slow way: the whole text is looked through after each part.
        places = [place for stop in stops if (place := whole.find(stop)) >= 0]
        assert growing.stopped == bool(places)
        if places:
            assert given_out == growing.text == whole[: min(places)]
            return
        assert whole.startswith(given_out)
        held = whole[len(given_out) :]
        assert not held or any(stop.startswith(held) for stop in stops)
    assert given_out + growing.end() == whole
