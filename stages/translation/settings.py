"""Settings of translation and of its beam search. Free of torch."""

from collections.abc import Sized
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field

from stages.config import Settings, Spelling
from stages.errors import UsageError


class Longest(NamedTuple):
    """Maximum length of the translation of S tokens: factor · S + more, end token included."""

    factor: float
    more: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `1.2,10`. Raises: UsageError for anything else."""
        factor, _, more = text.partition(",")
        try:
            limit = cls(float(factor), int(more))
        except ValueError:
            limit = cls(-1, 0)
        if not (0 <= limit.factor < 1 << 20 and 0 <= limit.more < 1 << 20):
            raise UsageError(
                f"--max-length {text}: expected a factor and a number of tokens, as 1.2,10."
            )
        return limit

    def of(self, source: Sized) -> int:
        """Maximum length of the translation of a source, in tokens; at least 2, for a token and an
        end.

        >>> Longest.parse("1.2,10").of(range(5))
        16
        """
        return max(2, int(self.factor * len(source) + self.more))


def _checked(text: str) -> str:
    Longest.parse(text)
    return text


Beam = Annotated[int, Field(ge=1, le=1000)]
LengthPenalty = Annotated[float, Field(ge=-10, le=10)]
"""Bounded so that powers of lengths are finite numbers."""
MaxLength = Annotated[str, AfterValidator(_checked), Spelling("FACTOR,MORE")]


class DecodingSettings(Settings):
    """Settings of the search for translations."""

    beam: Beam = 4
    """Hypotheses a sentence; 1 is greedy."""
    length_penalty: LengthPenalty = 0.6
    """α of score = log p / length^α: larger favours longer translations."""
    max_length: MaxLength = "1.2,10"
    """Longest translation: FACTOR times the source's tokens + MORE."""

    @property
    def longest(self) -> Longest:
        return Longest.parse(self.max_length)


class TranslationRequest(DecodingSettings):
    """A request for translations."""

    tokens: Annotated[str | None, Spelling("TOKENS")] = None
    """Corpus whose pairs `similar-pairs` finds; None: that of --report, else the model's."""
    text: str | None = None
    """Translate this line; None: those of stdin."""
    attribute: bool = False
    """Under each line list the pairs that gave its tokens."""
