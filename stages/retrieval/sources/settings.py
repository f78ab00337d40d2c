"""What every source's settings say of it. Free of torch."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from stages.artifacts.artifact import Artifact
from stages.memory.hyperparameter import Hyperparameter, ReadingOptions

if TYPE_CHECKING:
    from stages.retrieval.reading import Reading


class SourceSettings(ReadingOptions):
    """The keys that a source adds to a reading, and what an evaluation must know before it opens it."""

    word: ClassVar[str] = "memory"
    """What a person calls what it reads."""
    means: ClassVar[str] = ""
    """What its entries are."""
    amount: ClassVar[str]
    """What its cut-offs count: one of its keys, or a name of `reported`."""
    reported: ClassVar[Mapping[str, Hyperparameter]] = {}
    """Numbers that reports tell beside those of its keys."""
    reported_as: ClassVar[Mapping[str, str]] = {}
    """Keys that reports tell of under another name."""
    reads_datastore: ClassVar[bool] = False
    """Whether it reads neighbours; its amount is then their number."""
    reads_windows: ClassVar[bool] = False
    """Whether it matters to it where the windows or segments of a split begin."""

    @abstractmethod
    def resolve(self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> "Reading":
        """The reading with what these artifacts decide for this source; see `resolve_reading`."""
