"""Where documents and paragraphs begin, found piece by piece as text streams by."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from stages.text.pieces import Piece

OPENS_DOCUMENT = 1
ENDS_DOCUMENT = 2
OPENS_PARAGRAPH = 4
ENDS_LINE = 8

LONGEST_SPACE = 1024
"""Characters of white space that are held until text follows."""
LONGEST_LINES, LONGEST_TEXT = 100, 2**15
"""Lines and characters beyond which a run of lines is no paragraph, but lines that stand for themselves, as captions
and sentences do: prose wrapped at 70 columns would fill two pages, and the paragraphs of Python's documentation, tiny
Shakespeare and WikiText-2 have 94 lines at most. So much is held in memory until it is known."""


class MarkedPiece(NamedTuple):
    """A piece of text with the sum of the marks above that hold for it."""

    text: str
    marks: int
    name: str | None = None
    """What the documents from here on are called, where that changes."""


Boundary = Callable[[str, bool, bool], bool]
"""(line, whether the line before is blank, whether the one after is) -> whether a document begins here.

Asked at lines that are not blank, of documents that have such a line already. Blank lines belong to the
document before them, leading ones to the first.
"""


def is_title(line: str) -> bool:
    """Whether a line is a level-1 heading of WikiText, ` = Title = `, and none of a deeper level."""
    line = line.rstrip("\n")
    outer = line.startswith(" = ") and line.endswith(" = ") and len(line) > len(" = = ")
    return outer and not line.startswith(" = = ") and not line.endswith(" = = ")


BOUNDARIES: dict[str, Boundary] = {
    "file": lambda line, before, after: False,
    "jsonl": lambda line, before, after: False,
    "line": lambda line, before, after: True,
    "blank-line": lambda line, before, after: before,
    # Text broken at " = " looks like a heading too, but stands among other lines:
    # WikiText-2 has 629 such lines in train and exactly its 600 articles with blank lines around.
    "wikitext": lambda line, before, after: before and after and is_title(line),
}


def mark(record: Iterable[Piece], boundary: Boundary) -> Iterator[MarkedPiece]:
    """Find documents and paragraphs in one record (a file, or the text of a JSON line).

    A record begins a document, whatever `boundary` says. A paragraph is a maximal run of lines that are not
    blank; like documents, it takes the blank lines after it along. Where that is longer than LONGEST_LINES or
    LONGEST_TEXT, each of its lines is a paragraph.
    """
    last: MarkedPiece | None = None
    for piece in _long_runs_cut(_opened(record, boundary)):
        if last is not None:
            ends = ENDS_DOCUMENT if piece.marks & OPENS_DOCUMENT else 0
            yield MarkedPiece(last.text, last.marks | ends)
        last = piece
    if last is not None:
        yield MarkedPiece(last.text, last.marks | ENDS_DOCUMENT)


def _opened(record: Iterable[Piece], boundary: Boundary) -> Iterator[tuple[MarkedPiece, bool]]:
    """Each piece, and whether a line begins there that is not the first with text of the record, nor blank."""
    first, has_text, blank_before = True, False, True
    for piece, blank, blank_after in _with_blanks(record):
        marks = ENDS_LINE if piece.ends_line else 0
        if first:
            marks |= OPENS_DOCUMENT | OPENS_PARAGRAPH
        elif has_text and piece.starts_line and not blank:
            if boundary(piece.text, blank_before, blank_after):
                marks |= OPENS_DOCUMENT | OPENS_PARAGRAPH
            elif blank_before:
                marks |= OPENS_PARAGRAPH
        yield MarkedPiece(piece.text, marks), has_text and piece.starts_line and not blank
        first, has_text, blank_before = False, has_text or not blank, blank


def _long_runs_cut(pieces: Iterable[tuple[MarkedPiece, bool]]) -> Iterator[MarkedPiece]:
    """Let every line of a run that is too long for a paragraph open one; holds what may be a paragraph yet."""
    held: list[tuple[MarkedPiece, bool]] = []
    cut, lines, characters = False, 0, 0
    for piece, begins_line in pieces:
        if piece.marks & OPENS_PARAGRAPH:
            yield from (one for one, _ in held)
            held, cut, lines, characters = [], False, 1, 0
        elif begins_line:
            lines += 1
        held.append((piece, begins_line))
        characters += len(piece.text)
        cut = cut or lines > LONGEST_LINES or characters > LONGEST_TEXT
        if cut:
            yield from (_opening(one) if begins else one for one, begins in held)
            held = []
    yield from (one for one, _ in held)


def _opening(piece: MarkedPiece) -> MarkedPiece:
    return piece._replace(marks=piece.marks | OPENS_PARAGRAPH)


def _with_blanks(record: Iterable[Piece]) -> Iterator[tuple[Piece, bool, bool]]:
    """Each piece, whether it is blank, and whether the one after is; behind the last all is."""
    last: Piece | None = None
    last_blank = True
    for piece in record:
        blank = piece.is_blank
        if last is not None:
            yield last, last_blank, blank
        last, last_blank = piece, blank
    if last is not None:
        yield last, last_blank, True


class ParagraphHashes:
    """Digests of paragraphs as pieces stream by: BLAKE2b-64 of a paragraph's text without the white space around it."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._digest = hashlib.blake2b(digest_size=8)
        self._beyond: hashlib.blake2b | None = None
        self._space = ""
        self._open = self._has_text = False

    def add(self, piece: MarkedPiece) -> int | None:
        """Take a piece; returns the hash of the paragraph that this piece brings to its end, if any."""
        finished = self.finish() if piece.marks & OPENS_PARAGRAPH else None
        self._open = True
        text = piece.text if self._has_text else piece.text.lstrip()
        body = text.rstrip()
        if body:
            self._digest, self._beyond = self._beyond or self._digest, None
            self._digest.update((self._space + body).encode())
            self._has_text, self._space = True, ""
        self._hold_back(text[len(body) :])
        return finished

    def _hold_back(self, space: str) -> None:
        """White space counts only if text follows.

        A short run of it is kept; a long one goes into a second digest, since a text that grows by every blank
        line takes quadratic time, and memory without bound.
        """
        self._space += space
        if len(self._space) > LONGEST_SPACE:
            self._beyond = self._beyond or self._digest.copy()
            self._beyond.update(self._space.encode())
            self._space = ""

    def finish(self) -> int | None:
        """The hash of the paragraph under way, if there is one; a new one may begin."""
        value = int.from_bytes(self._digest.digest(), "little") if self._open else None
        self._begin()
        return value
