"""The interface of a tokenizer: pieces of text to token ids, with `<eos>` where its rule puts it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from stages.text.documents import ENDS_DOCUMENT, ENDS_LINE
from stages.text.spool import Pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EOS = "<eos>"
UNK = "<unk>"

EosRule = Literal["line", "document", "never"]


class TextTokenizer(ABC):
    """Encodes piece by piece, so that ids depend on the text alone."""

    kind: ClassVar[str]
    """Its name in commands and metrics."""
    eos_after: ClassVar[EosRule]
    """Unit after which `<eos>` is put in the stream; it is in every vocabulary."""
    eos_id: int
    unk_id: int | None
    vocabulary_size: int
    """One more than the largest id."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all texts end to end, integers [T], and how many each text has, int64 [P]; no `<eos>` is added."""

    @abstractmethod
    def huggingface(self) -> "Tokenizer":
        """The same tokenizer in Hugging Face's format: encoding a document with it gives the document's ids."""

    @property
    def dtype(self) -> np.dtype:
        """The smallest of uint16 and uint32 that holds every id."""
        return np.dtype(np.uint16 if self.vocabulary_size < 2**16 else np.uint32)

    def may_cut(self, before: str, after: str) -> bool:
        """Whether ids stay the same where a document is cut between these two consecutive pieces."""
        return True

    def encode(self, pieces: Pieces, rule: EosRule | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Ids of consecutive pieces, [T], and the token at which each piece ends, exclusive, int64 [P].

        Args:
            rule: where `<eos>` is put; None: as is usual for the tokenizer.
        """
        return self.closed(*self.encode_texts(pieces.texts), pieces, rule)

    def closed(
        self, ids: np.ndarray, counts: np.ndarray, pieces: Pieces, rule: EosRule | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add `<eos>` to the ids of pieces, [T], and to their counts, int64 [P]; returns what `encode` returns."""
        ends = np.cumsum(counts)
        closing = pieces.where({"line": ENDS_LINE, "document": ENDS_DOCUMENT, "never": 0}[rule or self.eos_after])
        counts = counts.copy()
        counts[closing] += 1
        ids = np.insert(ids.astype(self.dtype), ends[closing], self.eos_id)
        return ids, np.cumsum(counts)

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`; the same tokenizer gives the same bytes."""
        # The library's own `save` raises a bare Exception where the disk is full.
        path.write_bytes(self.huggingface().to_str(pretty=True).encode())


class TrainableTokenizer(TextTokenizer):
    """A tokenizer whose vocabulary is made here; those in the registry are of this kind."""

    @classmethod
    @abstractmethod
    def train(cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1) -> Self:
        """Make a tokenizer from training text.

        Args:
            texts: the text; read once.
            vocab_size: the most types to keep, special ones included; None for no limit.
            lowercase: whether text is lower-cased before anything else.
            min_count: occurrences below which a type is `<unk>`, for tokenizers of words.
        """
