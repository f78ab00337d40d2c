"""Settings of the sources `local` and `long`: positions before the one that reads, of its window or of the split."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from stages.artifacts.artifact import Artifact
from stages.memory.hyperparameter import Choice, Count, Hyperparameter
from stages.retrieval.sources.settings import Past, SourceSettings

if TYPE_CHECKING:
    from stages.retrieval.reading import Reading

SIZE = Hyperparameter(
    "cache size",
    axis="positions back",
    grid=(50, 100, 200, 500, 1000, 2000, 5000, 10_000),
    example="2000",
    untuned=(2048,),
)
"""The grid is that of Grave et al. 2017."""


class LocalSettings(SourceSettings):
    """No keys: the window says how much is read."""

    word: ClassVar[str] = "window"
    means: ClassVar[str] = "the positions before in the same window"
    amount: ClassVar[str] = "window"
    reported: ClassVar[Mapping[str, Hyperparameter]] = {"window": Hyperparameter("window", axis="tokens of a window")}
    reads_windows: ClassVar[bool] = True

    def past(self, reset: str) -> Past | None:
        return "document" if reset == "document" else "stream"

    def resolve(self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> "Reading":
        return reading


class LongSettings(SourceSettings):
    """How far back, and whether across documents."""

    word: ClassVar[str] = "cache"
    means: ClassVar[str] = "the cache, the last positions read"
    amount: ClassVar[str] = "size"
    size: Annotated[Choice[Count] | None, SIZE] = None
    """Positions back from the one that reads."""
    scope: Literal["stream", "document"] = "stream"
    """Whether the past ends where the document of the position begins."""

    def past(self, reset: str) -> Past | None:
        return self.scope

    def resolve(self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> "Reading":
        longest = max(read["tokens"].metrics["splits"][split]["tokens"] for split in splits)
        sizes = SIZE.grid if self.size == "tune" else self.size or ()
        return reading.changed({"size": tuple(sorted({min(int(size), longest) for size in sizes}))})
