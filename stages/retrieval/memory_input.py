"""Artifacts that sources of memory read, as the sources declare them. Free of torch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from stages.memory.hyperparameter import ReadingOptions

if TYPE_CHECKING:
    # a store takes time to import, and the help of `evaluate` needs none
    from stages.artifacts.artifact import Artifact
    from stages.artifacts.store import Store


@dataclass(frozen=True)
class InputSearch:
    """Artifacts known so far, from which an input of a source is found.

    `model` and `tokens` are those that the evaluation reads.
    """

    store: "Store"
    model: "Artifact"
    tokens: "Artifact"
    claimed: "Artifact | None" = None
    """Artifact that the command names with `--index` and that the input claims; None: none."""
    recorded: "Artifact | None" = None
    """Artifact of this role in a report whose readings are read again; None: none."""


class HeldText(NamedTuple):
    """A whole split whose tokens are the entries of a memory: row i is token i."""

    tokens: "Artifact"
    split: str


class MemoryInput(ABC):
    """An artifact that a source reads besides the model, its tokens and the datastore."""

    role: ClassVar[str]
    """Its role among the inputs of an evaluation."""
    words: ClassVar[str]
    """Its text in a sentence: `the index's text`."""
    from_tokens: ClassVar[bool] = False
    """Whether it is the tokens artifact that the command names with `--tokens`."""

    @abstractmethod
    def find(self, search: InputSearch, settings: ReadingOptions) -> "Artifact | None":
        """The artifact for a source with these settings; None: it can do without.

        Raises: ArtifactError or UsageError, with the remedy, if there is none, or if it does not
            fit the tokens.
        """

    def claims(self, index: "Artifact") -> bool:
        """Whether an index named with `--index` is this input, and no index of a datastore."""
        return False

    def text(self, artifact: "Artifact") -> HeldText | None:
        """The text that it holds; None: it holds none, so that it cannot hold the answers."""
        return None

    def own_splits(self, artifact: "Artifact", tokens: "Artifact") -> set[str]:
        """The splits of a tokens artifact whose answers it holds."""
        return set()

    def check_exclusion(self, exclude: str | None, splits: Sequence[str]) -> None:
        """Refuse an exclusion that this memory cannot keep; by default none is refused.

        Raises: UsageError if tokens of these splits could find their own rows.
        """
        return None

    def stored_bytes(self, artifact: "Artifact") -> int:
        """Bytes on disk that a reading of it needs; by default all of the artifact's."""
        return artifact.bytes

    def memory_bytes(self, artifact: "Artifact") -> int:
        """Bytes of main memory that it takes when it is opened."""
        return 0
