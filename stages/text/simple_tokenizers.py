"""Tokenizers by lookup: words between white space, as in WikiText and Penn Treebank; characters;
UTF-8 bytes.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from stages.array_files import save_arrays
from stages.text.documents import ENDS_LINE
from stages.text.spool import Pieces
from stages.text.tokenizer import EOS, UNK, TrainableTokenizer, by_frequency, lower, splitting

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class SplitText:
    """Text as words, or as other parts, split once for all later uses."""

    words: list[str]
    """Distinct words, in order of first occurrence."""
    places: np.ndarray
    """Index in `words` of each word of the text, uint32 [T]."""
    counts: np.ndarray
    """Number of words in each piece of the text, int64 [P]."""

    @classmethod
    def of(
        cls, texts: Sequence[str], lowercase: bool, cut: Callable[[str], list[str]] | None = None
    ) -> Self:
        """Split consecutive pieces with `cut`; None: into words."""
        # each word gets the next number when it is first looked up
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        # An array, because the numbers of a list would be converted one by one.
        places = array("I")
        ends = [0]
        if lowercase:
            texts = [lower(text) for text in texts]
        words_of = cut or splitting(texts)
        for text in texts:
            places.extend(map(numbers.__getitem__, words_of(text)))
            ends.append(len(places))
        return cls(list(numbers), np.array(places, np.uint32), np.diff(ends))

    def save(self, path: Path) -> None:
        """Write the words to a file."""
        text = np.frombuffer("\n".join(self.words).encode(), np.uint8)
        save_arrays(path, text, self.places, self.counts)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file of `save`."""
        with path.open("rb") as file:
            text, places, counts = (np.load(file, allow_pickle=False) for _ in range(3))
        spelled = text.tobytes().decode()
        return cls(spelled.split("\n") if spelled else [], places, counts)


class _WithUnknown(dict[str, int]):
    def __missing__(self, word: str) -> int:
        return self[UNK]


class WordTokenizer(TrainableTokenizer):
    """Looks up words; those missing from training text, or too rare in it, are `<unk>`."""

    kind = "word"
    eos_after = "line"

    def __init__(self, vocabulary: dict[str, int], lowercase: bool) -> None:
        self.vocabulary = _WithUnknown(vocabulary)
        self.lowercase = lowercase
        self.eos_id = vocabulary[EOS]
        self.unk_id = vocabulary[UNK]
        self.vocabulary_size = len(vocabulary)

    @classmethod
    def train(
        cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1
    ) -> Self:
        split = ((SplitText.of(p.texts, lowercase), len(p.where(ENDS_LINE))) for p in texts)
        return cls.learn(split, vocab_size, lowercase, min_count)

    @classmethod
    def learn(
        cls,
        texts: Iterable[tuple[SplitText, int]],
        vocab_size: int | None,
        lowercase: bool,
        min_count: int,
    ) -> Self:
        """Like `train`, for texts already split into words, each with the number of lines that end
        in it.
        """
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        occurrences = np.zeros(0, np.int64)
        ends = 0
        for split, lines in texts:
            # Counted by number: Python does one step per type of the text, not one per word.
            types = np.fromiter(map(numbers.__getitem__, split.words), np.int64, len(split.words))
            occurrences = np.pad(occurrences, (0, len(numbers) - len(occurrences)))
            occurrences[types] += np.bincount(split.places, minlength=len(types))
            ends += lines
        counts = Counter(dict(zip(numbers, occurrences.tolist(), strict=True)))
        counts[EOS] += ends
        return cls(by_frequency(counts, vocab_size, min_count), lowercase)

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self.encode_split(SplitText.of(texts, self.lowercase))

    def encode_split(self, split: SplitText) -> tuple[np.ndarray, np.ndarray]:
        """Like `encode_texts`, for texts already split into words."""
        ids = np.fromiter(map(self.vocabulary.__getitem__, split.words), np.int64, len(split.words))
        return ids[split.places], split.counts

    def huggingface(self) -> "Tokenizer":
        """A `tokenizer.json` of words; a newline becomes `<eos>`."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        tokenizer = Tokenizer(models.WordLevel(dict(self.vocabulary), UNK))
        newline = normalizers.Replace("\n", f" {EOS} ")
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Lowercase()] * self.lowercase + [newline]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return tokenizer


_CODE_POINTS = 0x110000


class CharTokenizer(TrainableTokenizer):
    """Looks up code points; those missing from training text are `<unk>`."""

    kind = "char"
    eos_after = "never"

    def __init__(self, vocabulary: dict[str, int], lowercase: bool) -> None:
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.eos_id = vocabulary[EOS]
        self.unk_id = vocabulary[UNK]
        self.vocabulary_size = len(vocabulary)
        # A table of all code points, 4 MB, lets NumPy look up a whole text at once.
        self._ids = np.full(_CODE_POINTS, self.unk_id, np.int32)
        for text, id in vocabulary.items():
            if len(text) == 1:
                self._ids[ord(text)] = id

    @classmethod
    def train(
        cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1
    ) -> Self:
        counts: Counter[str] = Counter()
        for pieces in texts:
            for text in pieces.texts:
                counts.update(lower(text) if lowercase else text)
        return cls(by_frequency(counts, vocab_size), lowercase)

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        texts = [lower(text) for text in texts] if self.lowercase else texts
        code_points = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
        counts = np.fromiter(map(len, texts), np.int64, len(texts))
        return self._ids[code_points], counts

    def huggingface(self) -> "Tokenizer":
        """A `tokenizer.json` of characters."""
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

        tokenizer = Tokenizer(models.WordLevel(dict(self.vocabulary), UNK))
        if self.lowercase:
            tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
        return tokenizer


class ByteTokenizer(TrainableTokenizer):
    """Encodes any text and needs no training."""

    kind = "byte"
    eos_after = "never"
    eos_id = 256
    unk_id = None
    vocabulary_size = 257

    def __init__(self, lowercase: bool) -> None:
        self.lowercase = lowercase

    @classmethod
    def train(
        cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1
    ) -> Self:
        return cls(lowercase)

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded = [(lower(text) if self.lowercase else text).encode() for text in texts]
        counts = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return np.frombuffer(b"".join(encoded), np.uint8), counts

    def huggingface(self) -> "Tokenizer":
        """A `tokenizer.json` of bytes: byte-level BPE without merges."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

        vocabulary = {_symbol(byte): byte for byte in range(256)} | {EOS: ByteTokenizer.eos_id}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        if self.lowercase:
            tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer


def _symbol(byte: int) -> str:
    """The printable character that stands for a byte in byte-level vocabularies (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in printable:
        return chr(byte)
    return chr(256 + sum(other not in printable for other in range(byte)))
