"""Size of a text, and sizes of its documents for each way to cut it, found in one pass."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import log2
from pathlib import Path

import numpy as np

from stages.metrics import LONG_WORD
from stages.text import TOKENIZERS
from stages.text.documents import BOUNDARIES, OPENS_DOCUMENT, mark
from stages.text.files import compression, pieces
from stages.text.records import TextFile, records
from stages.text.spool import Pieces
from stages.text.tokenizer import UNK, words


@dataclass
class DocumentSizes:
    """Documents of a text under one way to cut it; sizes are in characters."""

    setting: str | None
    """Value of `tokenize --documents`; None: files, or the records in them."""
    count: int = 0
    largest: int = 0
    _size: int = 0

    def add(self, characters: int, *, begins: bool) -> None:
        """Take the next piece of text, which may begin a document."""
        if begins:
            self.count = self.count + 1
            self._size = 0
        self._size += characters
        self.largest = max(self.largest, self._size)


@dataclass(frozen=True)
class Survey:
    """The size of a text, and ways to cut it, the coarsest first."""

    bytes: int
    characters: int
    cuts: tuple[DocumentSizes, ...]

    def cut_below(self, characters: float, fewest: int) -> DocumentSizes | None:
        """The coarsest cut into at least `fewest` documents, none longer than `characters`; None:
        not even lines are."""
        fit = (cut for cut in self.cuts if cut.largest <= characters and cut.count >= fewest)
        return next(fit, None)


def survey(files: Iterable[TextFile]) -> Survey:
    """Read all text once, in bounded memory.

    Raises: DataError naming a faulty file.
    """
    size = characters = 0
    whole = DocumentSizes(None)
    paragraphs = DocumentSizes("blank-line")
    lines = DocumentSizes("line")
    for text, first, opens, new_line in _pieces(files):
        size = size + len(text.encode())
        characters = characters + len(text)
        whole.add(len(text), begins=first)
        paragraphs.add(len(text), begins=opens)
        lines.add(len(text), begins=new_line)
    return Survey(size, characters, (whole, paragraphs, lines))


def _pieces(files: Iterable[TextFile]) -> Iterator[tuple[str, bool, bool, bool]]:
    """(text, whether it begins a record, a paragraph, a line with text); blank lines belong to the
    text before them.
    """
    for file in files:
        for record in records(file):
            first = True
            whole_line = True
            for piece in mark(pieces(record.blocks), BOUNDARIES["blank-line"]):
                begins_line = first or (whole_line and not piece.text.isspace())
                yield piece.text, first, bool(piece.marks & OPENS_DOCUMENT), begins_line
                first = False
                whole_line = piece.text.endswith("\n")


def count_lines(files: Iterable[TextFile], max_lines: int) -> int:
    """Number of lines with more than white space; reading stops at `max_lines`."""
    lines = (piece for piece in _pieces(files) if piece[-1])
    return sum(1 for _ in islice(lines, max_lines))


_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
"""Runs of Thai and Lao, Burmese, Khmer, kana and Chinese characters; Korean puts spaces between
words.
"""
UNSPACED_SHARE = 0.3
"""Share of the characters above which a text counts as written in these scripts."""
LONG_RUN = 3
"""Mean length in characters above which runs are not words; in text split into words beforehand it
is two.
"""


def lacks_words(texts: Sequence[str]) -> bool:
    """Whether white space does not separate words: texts in a script without spaces, or one long
    run of characters.
    """
    characters = sum(map(len, texts))
    runs = [len(run) for text in texts if not text.isascii() for run in _UNSPACED.findall(text)]
    unspaced = sum(runs) > max(UNSPACED_SHARE * characters, LONG_RUN * len(runs))
    return unspaced or characters > LONG_WORD * sum(len(text.split()) for text in texts)


SAMPLE_BYTES = 1_000_000
"""Bytes of the sample, a second of work. The estimated number of tokens is within 3% of that of the
whole text, or of a third of it. Measured on tinyshakespeare, two novels of 0.4 and 1.2 MB, and 6.5
MB of German sentences."""


def token_bytes(text: str) -> Callable[[int], float]:
    """Function from the types of a bpe vocabulary learnt from a text to its bytes per token, `<eos>`
    not counted.

    Args:
        text: at most about `SAMPLE_BYTES`, from all over the text that it stands for.
    """
    lines = [piece.text for piece in pieces([text])]
    size = len(text.encode())

    @cache
    def measured(types: int) -> float:
        tokenizer = TOKENIZERS.load("bpe").train(
            [Pieces(lines, np.zeros(len(lines), np.uint8))], types, lowercase=False
        )
        ids, _ = tokenizer.encode_texts(lines)
        return size / max(1, len(ids))

    return measured


BPE_VOCABULARIES = (2**9, 2**15)
"""Smallest and largest vocabulary chosen: above, the softmax costs more than longer tokens save."""


def bpe_vocabulary(text_bytes: float) -> int:
    """The power of two nearest to 2 √bytes, at least 512, at most 32,768.

    A type must occur often enough to be learnt, and frequencies of types follow Zipf's law. So the
    number of types with n occurrences grows with about the square root of the text. At 2 √bytes,
    nine of ten types of BPE occur in train at least 20 times: measured on 50 kB of a novel (512
    types, 95 %), a novel of 255 kB (1,024, 90 %) and of 1.2 MB (2,048, 93 %), tinyshakespeare
    (2,048, 86 %), 16 novels of 9.1 MB and WikiText-2 (8,192, 93 %). With twice the types, only 20
    to 55 % of them are as frequent, instead of 90.
    """
    smallest, largest = BPE_VOCABULARIES
    size: int = 2 ** round(log2(max(1.0, 2 * text_bytes**0.5)))
    return min(max(size, smallest), largest)


def record_sizes(files: Iterable[TextFile]) -> list[int]:
    """Bytes of UTF-8 of each record, in order; plain text files are not read, their sizes are
    enough.

    Raises: DataError for any fault in the files.
    """
    sizes = list[int]()
    for file in files:
        if file.format == "txt" and not compression(file.path):
            sizes.append(Path(file.path).stat().st_size)
            continue
        for record in records(file):
            sizes.append(sum(len(block.encode()) for block in record.blocks))
    return sizes


def text_bytes(files: Iterable[TextFile]) -> int:
    """Bytes of UTF-8 text in files."""
    return sum(record_sizes(files))


def holds_unknown(files: Iterable[TextFile]) -> bool:
    """Whether `<unk>` is a word of the text, as in WikiText and Penn Treebank; reading stops at the
    first one.
    """
    texts = (
        piece.text for file in files for record in records(file) for piece in pieces(record.blocks)
    )
    return any(UNK in text and UNK in words(text) for text in texts)
