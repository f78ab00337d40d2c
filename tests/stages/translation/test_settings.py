"""Settings of a search for translations: whatever is legal gives numbers."""

import pytest
from pydantic import ValidationError

from stages.errors import UsageError
from stages.translation.settings import DecodingSettings, Longest


@pytest.mark.parametrize(
    "text", ["", "1.2", "-1,2", "nan,2", "inf,2", "1e308,2", "1.2,-1", "1.2,2.5"]
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="factor and a number"):
        Longest.parse(text)


def test_the_longest_translation_has_a_token_and_an_end() -> None:
    assert [Longest.parse("0,0").of(range(5)), Longest.parse("2,1").of(range(5))] == [2, 11]


@pytest.mark.parametrize("side", [-1, 1])
def test_a_penalty_of_long_translations_stays_a_number(side: int) -> None:
    with pytest.raises(ValidationError):
        DecodingSettings(length_penalty=side * 100)
    assert (
        0
        < float(2 << 20) ** DecodingSettings(length_penalty=side * 10).length_penalty
        < float("inf")
    )
