"""The text of an open book, among the artifacts that an evaluation reads. Free of torch."""

from typing import ClassVar

from stages.artifacts.artifact import Artifact
from stages.lineage.corpus import array_digests
from stages.memory.hyperparameter import ReadingOptions
from stages.retrieval.memory_input import HeldText, InputSearch, MemoryInput

SPLIT = "train"
"""The split that passages are of."""
INDEX_BYTES = 18
"""Memory of a term of a passage in an index for BM25, at the most."""


class BookText(MemoryInput):
    """Tokens whose passages stand before the context; no source reads them."""

    role: ClassVar[str] = "open_book"
    words: ClassVar[str] = "the book's text"

    def find(self, search: InputSearch, settings: ReadingOptions) -> Artifact | None:
        return None

    def text(self, artifact: Artifact) -> HeldText:
        return HeldText(artifact, SPLIT)

    def own_splits(self, artifact: Artifact, tokens: Artifact) -> set[str]:
        book = array_digests(artifact, f"{SPLIT}/ids")
        splits = tokens.metrics["splits"]
        return {split for split in splits if array_digests(tokens, f"{split}/ids") == book}

    def stored_bytes(self, artifact: Artifact) -> int:
        width = 2 if artifact.metrics["vocabulary_size"] <= 1 << 16 else 4
        return width * int(artifact.metrics["splits"][SPLIT]["tokens"])

    def memory_bytes(self, artifact: Artifact) -> int:
        return INDEX_BYTES * int(artifact.metrics["splits"][SPLIT]["tokens"])


BOOK = BookText()
