import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.text import blocks as module
from stages.text.blocks import pieces
from tests.oracles import text as oracle
from tests.stages.text.helpers import examples

texts = st.text(st.sampled_from("ab \n\t\r\u2028é"), max_size=200)


@examples
@given(texts, st.integers(1, 30))
def test_lines_are_those_of_newlines_alone_whatever_the_blocks(text: str, block: int) -> None:
    found = list(pieces(text[i : i + block] for i in range(0, len(text), block)))
    assert [piece.text for piece in found] == oracle.lines(text)
    assert all(piece.starts_line and piece.ends_line for piece in found)


@examples
@given(texts, st.integers(1, 30), st.integers(1, 40))
def test_long_lines_are_cut_alike_whatever_the_blocks(text: str, block: int, longest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST_PIECE", longest)
        found = list(pieces(text[i : i + block] for i in range(0, len(text), block)))
        assert found == list(pieces([text]))
    assert "".join(piece.text for piece in found) == text
    assert all(len(piece.text.rstrip("\n")) <= longest for piece in found)
    assert sum(piece.ends_line for piece in found) == len(oracle.lines(text))


def test_the_cut_comes_before_the_last_single_space_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_PIECE", 10)
    assert [p.text for p in pieces(["aa bb cc  dd eee\n"])] == ["aa bb", " cc  dd", " eee\n"]
    assert [p.text for p in pieces(["x" * 25])] == ["x" * 10, "x" * 10, "x" * 5]
