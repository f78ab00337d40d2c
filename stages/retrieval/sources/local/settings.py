"""Settings of the source `local`: the positions of the same window before the one that reads."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from stages.artifacts.artifact import Artifact
from stages.memory.hyperparameter import Hyperparameter
from stages.retrieval.sources.settings import Past, SourceSettings

if TYPE_CHECKING:
    from stages.retrieval.reading import Reading


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
