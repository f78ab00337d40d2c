"""Interface of a tokenizer, and words, letter case and vocabularies as Hugging Face's tokenizers
define them.

Pieces of text become token ids, with `<eos>` where the tokenizer's rule puts it.
"""

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from stages.text.documents import ENDS_DOCUMENT, ENDS_LINE
from stages.text.spool import Pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Normalizer


EOS = "<eos>"
UNK = "<unk>"

EosRule = Literal["line", "document", "never"]


class TextTokenizer(ABC):
    """Encodes text piece by piece. The ids depend only on the text."""

    kind: ClassVar[str]
    """Name of the tokenizer in commands and metrics."""
    eos_after: ClassVar[EosRule]
    """Unit of text after which `<eos>` is added; every vocabulary has `<eos>`."""
    eos_id: int
    unk_id: int | None
    vocabulary_size: int
    """One more than the largest id."""
    files: ClassVar[tuple[str, ...]] = ()
    """Names of the files that `save` writes besides `tokenizer.json`, in its folder."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all texts end to end, integers [T], and the number of each text's ids, int64 [P];
        no `<eos>` is added."""

    @abstractmethod
    def huggingface(self) -> "Tokenizer":
        """The same tokenizer in Hugging Face's format: encoding a document with it gives the
        document's ids.
        """

    @property
    def special_ids(self) -> dict[str, int | None]:
        """Special ids for the metrics of tokens; by default none."""
        return {}

    @property
    def control_tokens(self) -> dict[int, str]:
        """Tokens by id that stand for no text; by default there are none besides `<eos>`."""
        return {}

    def exported(self) -> "Tokenizer":
        """The tokenizer for transformers: it begins a text with `<eos>`, as a split does."""
        from tokenizers import processors

        backend = self.huggingface()
        eos = backend.id_to_token(self.eos_id)
        backend.post_processor = processors.TemplateProcessing(
            single=f"{eos} $A", special_tokens=[(eos, self.eos_id)]
        )
        return backend

    @property
    def dtype(self) -> np.dtype:
        """The smallest of uint16 and uint32 that holds every id."""
        return np.dtype(np.uint16 if self.vocabulary_size < 2**16 else np.uint32)

    def may_cut(self, before: str, after: str) -> bool:
        """Whether ids stay the same if a document is cut between these two consecutive pieces."""
        return True

    def encode(self, pieces: Pieces, rule: EosRule | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Ids of consecutive pieces, [T], and the token at which each piece ends, exclusive, int64
        [P].

        Args:
            rule: unit after which `<eos>` is added; None: the tokenizer's own rule.
        """
        return self.closed(*self.encode_texts(pieces.texts), pieces.marks, rule)

    def closed(
        self, ids: np.ndarray, counts: np.ndarray, marks: np.ndarray, rule: EosRule | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add `<eos>` to the ids of pieces, [T], and to their counts, int64 [P], according to their
        marks, uint8 [P].

        Returns: see `encode`.
        """
        marks_of_rule = {"line": ENDS_LINE, "document": ENDS_DOCUMENT, "never": 0}
        closing_marks = marks_of_rule[rule or self.eos_after]
        closing = np.flatnonzero(marks & closing_marks)

        # `np.insert` expects places in the array before any insertion.
        ends = np.cumsum(counts)
        all_ids = np.insert(ids.astype(self.dtype), ends[closing], self.eos_id)
        all_counts = counts.copy()
        all_counts[closing] += 1
        return all_ids, np.cumsum(all_counts)

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`; the same tokenizer gives the same bytes."""
        # The library's own `save` raises a bare Exception if the disk is full.
        path.write_bytes(self.huggingface().to_str(pretty=True).encode())


class TrainableTokenizer(TextTokenizer):
    """A tokenizer whose vocabulary is learnt here. All tokenizers in the registry are trainable."""

    @classmethod
    @abstractmethod
    def train(
        cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1
    ) -> Self:
        """Make a tokenizer from training text.

        Args:
            texts: the text; it is read once.
            vocab_size: maximum number of types, special ones included; None: no limit.
            lowercase: whether text is lower-cased before anything else.
            min_count: fewest occurrences of a type that is not `<unk>`, for word tokenizers.
        """


_WORD = re.compile(r"(?:\S|[\x1c-\x1f])+")
"""These four separators are white space for Python, but not for Unicode."""


def words(text: str) -> list[str]:
    """Split text on Unicode white space, like the pre-tokenizer `WhitespaceSplit`."""
    return splitting([text])(text)


def splitting(texts: Sequence[str]) -> Callable[[str], list[str]]:
    """The fastest function that splits each of these texts like `words`."""
    whole = "".join(texts)
    # `str.split` is far faster, and correct if none of the four occurs.
    separated = "\x1c" in whole or "\x1d" in whole or "\x1e" in whole or "\x1f" in whole
    return _WORD.findall if separated else str.split


def lower(text: str) -> str:
    """Lower-case text character by character, like the normalizer `Lowercase`."""
    return text.lower() if text.isascii() else str(_normalizer().normalize_str(text))


@cache
def _normalizer() -> "Normalizer":
    from tokenizers.normalizers import Lowercase

    return Lowercase()


def by_frequency(counts: Counter[str], limit: int | None, min_count: int = 1) -> dict[str, int]:
    """A vocabulary with ids by falling count, ties in order of text.

    Args:
        counts: occurrences in training text; `<eos>` and `<unk>` are kept whatever their counts.
        limit: maximum number of types; the others count as `<unk>`.
        min_count: fewest occurrences of a type that is kept; rarer ones count as `<unk>` too.

    >>> by_frequency(Counter({"a": 2, "b": 5, "c": 1}), limit=4)
    {'b': 0, 'a': 1, '<unk>': 2, '<eos>': 3}
    """
    special = (EOS, UNK)
    others = {text: count for text, count in counts.items() if text not in special}
    ranked = _ranked(others)

    # counts fall, and their negations rise, as a search by halves wants them
    num_kept = bisect_right(ranked, -min_count, key=lambda text: -counts[text])
    if limit is not None:
        num_kept = min(num_kept, limit - len(special))

    # `<unk>` and `<eos>` have ranks like others
    counts_of_types = {text: counts[text] for text in ranked[:num_kept]}
    num_dropped = sum(counts[text] for text in ranked[num_kept:])
    counts_of_types[EOS] = counts[EOS]
    counts_of_types[UNK] = counts[UNK] + num_dropped
    types = _ranked(counts_of_types)
    return {text: id for id, text in enumerate(types)}


def _ranked(counts: dict[str, int]) -> list[str]:
    """Texts by falling count, ties in order of text."""
    # Two plain sorts take a third of the time of one by pairs. The second sort is stable.
    return sorted(sorted(counts), key=counts.__getitem__, reverse=True)
