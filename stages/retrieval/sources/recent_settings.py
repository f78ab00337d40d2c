"""Settings of the sources `local` and `long`: earlier positions of the window, or of the split. Free
of torch.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from stages.artifacts.artifact import Artifact
from stages.memory.hyperparameter import Choice, Count, Hyperparameter
from stages.retrieval.reading import Past, Reading, SourceSettings
from stages.retrieval.sources.amounts import SIZE, limited, longest_split, split_tokens


class LocalSettings(SourceSettings):
    """No keys: the window says how much is read."""

    word: ClassVar[str] = "window"
    means: ClassVar[str] = "the positions before in the same window"
    amount: ClassVar[str] = "window"
    reported: ClassVar[Mapping[str, Hyperparameter]] = {
        "window": Hyperparameter("window", axis="tokens of a window")
    }
    reads_windows: ClassVar[bool] = True
    past_amount: ClassVar[str | None] = "window"

    def past(self, reset: str) -> Past | None:
        return "document" if reset == "document" else "stream"


class LongSettings(SourceSettings):
    """How far back, and whether across documents."""

    word: ClassVar[str] = "cache"
    means: ClassVar[str] = "the cache, the last positions read"
    amount: ClassVar[str] = "size"
    past_amount: ClassVar[str | None] = "size"
    size: Annotated[Choice[Count] | None, SIZE] = None
    """Positions back from the one that reads."""
    scope: Literal["stream", "document"] = "stream"
    """Whether the past ends where the document of the position begins."""

    def past(self, reset: str) -> Past | None:
        return self.scope

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        sizes = SIZE.grid if self.size == "tune" else self.size or ()
        return reading.changed({"size": limited(sizes, longest_split(read, splits))})

    @classmethod
    def amounts(cls, read: Mapping[str, Artifact], split: str) -> Mapping[str, int]:
        return {"size": split_tokens(read, split)}
