"""Characters: one token a code point, newlines included."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from stages.text.spool import Pieces
from stages.text.tokenizer import EOS, UNK, TrainableTokenizer
from stages.text.vocabulary import by_frequency, lower

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CODE_POINTS = 0x110000


class CharTokenizer(TrainableTokenizer):
    """Looks up code points; those that training text did not have are `<unk>`."""

    kind = "char"
    eos_after = "never"

    def __init__(self, vocabulary: dict[str, int], lowercase: bool) -> None:
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.eos_id, self.unk_id = vocabulary[EOS], vocabulary[UNK]
        self.vocabulary_size = len(vocabulary)
        self._ids = np.full(_CODE_POINTS, self.unk_id, np.int32)
        for text, id in vocabulary.items():
            if len(text) == 1:
                self._ids[ord(text)] = id

    @classmethod
    def train(cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1) -> Self:
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
        return _char_layout(self.vocabulary, self.lowercase)


def _char_layout(vocabulary: dict[str, int], lowercase: bool) -> "Tokenizer":
    """A `tokenizer.json` of characters."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(dict(vocabulary), UNK))
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer
