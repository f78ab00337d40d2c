"""Bytes of UTF-8: id = byte value, `<eos>` = 256."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from stages.text.spool import Pieces
from stages.text.tokenizer import EOS, TrainableTokenizer
from stages.text.vocabulary import lower

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class ByteTokenizer(TrainableTokenizer):
    """Knows every text and needs no training."""

    kind = "byte"
    eos_after = "never"
    eos_id = 256
    unk_id = None
    vocabulary_size = 257

    def __init__(self, lowercase: bool) -> None:
        self.lowercase = lowercase

    @classmethod
    def train(cls, texts: Iterable[Pieces], vocab_size: int | None, lowercase: bool, min_count: int = 1) -> Self:
        return cls(lowercase)

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded = [(lower(text) if self.lowercase else text).encode() for text in texts]
        counts = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return np.frombuffer(b"".join(encoded), np.uint8), counts

    def huggingface(self) -> "Tokenizer":
        return _byte_layout(self.lowercase)


def _byte_layout(lowercase: bool) -> "Tokenizer":
    """A `tokenizer.json` of bytes: byte-level BPE without merges."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    vocabulary = {_symbol(byte): byte for byte in range(256)} | {EOS: ByteTokenizer.eos_id}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    if lowercase:
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
