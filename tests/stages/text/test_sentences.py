"""Sentences, found without a language: what stands behind them becomes a line end."""

import pytest

from stages.text.survey import in_sentences

TEXT = "It rains. “Does it?”  Yes! 3.14 is a number… 下雨了。「是嗎？」是。 Last"
LINES = ["It rains.", "“Does it?”", "Yes!", "3.14 is a number…", "下雨了。", "「是嗎？」", "是。", "Last"]


def test_sentences_end_at_their_marks_and_white_space_or_without_it_where_that_is_usual() -> None:
    assert "".join(in_sentences([TEXT])).split("\n") == LINES


@pytest.mark.parametrize("size", [1, 3, 10])
def test_how_the_text_comes_in_pieces_does_not_matter(size: int) -> None:
    parts = [TEXT[start : start + size] for start in range(0, len(TEXT), size)]
    assert "".join(in_sentences(parts)).split("\n") == LINES


def test_line_ends_stay_and_text_without_sentences_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "".join(in_sentences(["one.\ntwo\n\nthree. four"])) == "one.\ntwo\n\nthree.\nfour"
    monkeypatch.setattr("stages.text.survey.LONGEST_SENTENCE", 10)
    parts = iter(["a long text ", "without an end "])
    found = in_sentences(parts)
    assert next(found) == "a long text "
