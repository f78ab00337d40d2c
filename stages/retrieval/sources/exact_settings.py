"""Settings of the sources `exact` and `exact-stream`: what followed the longest matches of a context."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.memory.hyperparameter import Choice, Count, Hyperparameter
from stages.retrieval.sources.recent_settings import SIZE
from stages.retrieval.sources.settings import Past, SourceSettings

if TYPE_CHECKING:
    from stages.retrieval.reading import Reading

MATCHES = Hyperparameter("matches read", axis="matches", grid=(1, 4, 16, 64, 256))
DEFAULT_MATCHES = 64


class ExactSettings(SourceSettings):
    """How many matches, in the text of an index."""

    word: ClassVar[str] = "matches"
    means: ClassVar[str] = "what followed the longest matches of the context in the text of an index"
    amount: ClassVar[str] = "matches"
    compares_keys: ClassVar[bool] = False
    reads_text: ClassVar[bool] = True
    matches: Annotated[Choice[Count] | None, MATCHES] = None
    """Matches read, the longest first; None: 64."""

    def resolve(self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> "Reading":
        for name in ("key", "similarity"):
            if getattr(reading, name) is not None and not any(one.compares_keys for one in reading.source_settings):
                raise UsageError(f"{reading.spelled}: exact matches compare tokens, no keys: leave {name} out.")
        numbers = MATCHES.grid if self.matches == "tune" else self.matches or (DEFAULT_MATCHES,)
        return reading.changed({"matches": tuple(int(number) for number in numbers)})


class ExactStreamSettings(ExactSettings):
    """The same in what was read so far: a cache of matches of all lengths."""

    word: ClassVar[str] = "matches in the past"
    means: ClassVar[str] = "what followed the longest matches of the context in the last positions read"
    reads_text: ClassVar[bool] = False
    size: Annotated[Choice[Count] | None, replace(SIZE, example="")] = None
    """Positions back from the one that reads; None: all."""

    def past(self, reset: str) -> Past | None:
        return "stream"

    def resolve(self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> "Reading":
        longest = max(read["tokens"].metrics["splits"][split]["tokens"] for split in splits)
        asked = SIZE.grid if self.size == "tune" else self.size or (longest,)
        sizes = tuple(sorted({min(int(size), longest) for size in asked}))
        reading = super().resolve(reading, read, splits)
        if len(sizes) > 1 and (len(reading.value("matches")) > 1 or len(reading.sources) > 1 or reading.per_context):
            raise UsageError(
                f"{reading.spelled}: size is tuned of exact-stream alone, at one number of matches and one "
                f"{reading.weight_name} for all; give one size, or --memory exact-stream:size=tune,lambda=tune."
            )
        return reading.changed({"size": sizes})
