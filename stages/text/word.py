"""Words between white space, `<eos>` after each line: the tokens of WikiText and Penn Treebank."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from stages.text.documents import ENDS_LINE
from stages.text.spool import Pieces
from stages.text.tokenizer import EOS, UNK, TrainableTokenizer
from stages.text.vocabulary import by_frequency, lower, words

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class _WithUnknown(dict[str, int]):
    def __missing__(self, word: str) -> int:
        return self[UNK]


class WordTokenizer(TrainableTokenizer):
    """Looks up words; those that training text did not have, or too rarely, are `<unk>`."""

    kind = "word"
    eos_after = "line"

    def __init__(self, vocabulary: dict[str, int], lowercase: bool) -> None:
        self.vocabulary = _WithUnknown(vocabulary)
        self.lowercase = lowercase
        self.eos_id, self.unk_id = vocabulary[EOS], vocabulary[UNK]
        self.vocabulary_size = len(vocabulary)

    @classmethod
    def train(cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1) -> Self:
        counts: Counter[str] = Counter()
        for pieces in texts:
            for text in pieces.texts:
                counts.update(words(lower(text) if lowercase else text))
            counts[EOS] += len(pieces.where(ENDS_LINE))
        return cls(by_frequency(counts, vocab_size, min_count), lowercase)

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids: list[int] = []
        ends = np.zeros(len(texts) + 1, np.int64)
        look_up = self.vocabulary.__getitem__
        for number, text in enumerate(texts, start=1):
            ids.extend(map(look_up, words(lower(text) if self.lowercase else text)))
            ends[number] = len(ids)
        return np.array(ids, np.int64), np.diff(ends)

    def huggingface(self) -> "Tokenizer":
        return _word_layout(self.vocabulary, self.lowercase)


def _word_layout(vocabulary: dict[str, int], lowercase: bool) -> "Tokenizer":
    """A `tokenizer.json` of words; a newline becomes `<eos>`."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(dict(vocabulary), UNK))
    newline = normalizers.Replace("\n", f" {EOS} ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase()] * lowercase + [newline])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer
