"""Resolves `auto` in the settings of `tokenize`, from the text that the vocabulary is made of."""

from collections.abc import Iterable
from math import log2
from pathlib import Path

from stages.text.blocks import pieces
from stages.text.files import compression
from stages.text.records import TextFile, records
from stages.text.tokenizer import UNK
from stages.text.vocabulary import words

BPE_VOCABULARIES = (2**9, 2**15)
"""The smallest and the largest that is chosen: beyond, the softmax costs more than longer words save."""


def bpe_vocabulary(text_bytes: float) -> int:
    """The power of two nearest to 2 √bytes, at least 512, at most 32,768.

    A type must be seen often enough to be learnt, and the frequencies of types fall as Zipf's law says: how many occur
    n times grows with about the root of the text. At 2 √bytes nine of ten types that BPE makes stand in train at least
    20 times: measured on 50 kB of a novel (512 types, 95 %), a novel of 255 kB (1,024, 90 %) and of 1.2 MB (2,048,
    93 %), tinyshakespeare (2,048, 86 %), 16 novels of 9.1 MB and WikiText-2 (8,192, 93 %). Twice the types leave
    20 to 55 % of them as frequent, in place of 90.
    """
    smallest, largest = BPE_VOCABULARIES
    size: int = 2 ** round(log2(max(1.0, 2 * text_bytes**0.5)))
    return min(max(size, smallest), largest)


def text_bytes(files: Iterable[TextFile]) -> int:
    """Bytes of UTF-8 text in files; those of plain text are not read."""
    return sum(map(_bytes, files))


def holds_unknown(files: Iterable[TextFile]) -> bool:
    """Whether `<unk>` is a word of some text, as in WikiText and Penn Treebank; read until it is found."""
    texts = (piece.text for file in files for record in records(file) for piece in pieces(record.blocks))
    return any(UNK in text and UNK in words(text) for text in texts)


def _bytes(file: TextFile) -> int:
    if file.format == "txt" and not compression(file.path):
        return Path(file.path).stat().st_size
    return sum(len(block.encode()) for record in records(file) for block in record.blocks)
