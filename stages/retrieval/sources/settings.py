"""Settings that every source has. Free of torch."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from stages.artifacts.artifact import Artifact
from stages.memory.hyperparameter import Hyperparameter, ReadingOptions

if TYPE_CHECKING:
    from stages.retrieval.reading import Reading

Past = Literal["stream", "document"]
"""How far back tokens are read that were scored before: to the beginning of the split, or of the document."""


class SourceSettings(ReadingOptions):
    """Name of the source for people."""

    word: ClassVar[str] = "memory"
    """Name of the source for people."""
    means: ClassVar[str] = ""
    """Meaning of its entries."""
    amount: ClassVar[str]
    """The amount that its cut-offs count: one of its keys, or a name of `reported`."""
    reported: ClassVar[Mapping[str, Hyperparameter]] = {}
    """Numbers that reports tell beside those of its keys."""
    reported_as: ClassVar[Mapping[str, str]] = {}
    """Keys that reports tell of under another name."""
    reads_datastore: ClassVar[bool] = False
    """Whether it reads neighbours; its amount is then their number."""
    reads_pairs: ClassVar[bool] = False
    """Whether it finds pairs of sentences and reads neighbours among their tokens; its amount is their number."""
    reads_text: ClassVar[bool] = False
    """Whether it reads the text of an exact index."""
    compares_keys: ClassVar[bool] = True
    """Whether it compares representations; else tokens, and its scores are lengths of matches."""
    reads_windows: ClassVar[bool] = False
    """Whether it matters to it where the windows or segments of a split begin."""

    def past(self, reset: str) -> Past | None:
        """The tokens before each that it may read; None: none of them.

        Args:
            reset: `document` where windows begin anew at every document, else `none`.
        """
        return None

    @abstractmethod
    def resolve(self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> "Reading":
        """The reading with what these artifacts decide for this source; see `resolve_reading`."""
