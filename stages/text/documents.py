"""Where documents and paragraphs begin, found piece by piece as text streams by."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from stages.text.blocks import Piece

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
    """Name of the documents from here on, where it changes."""


_Opened = tuple[str, int, bool]
"""A piece of text, the marks of what opens there, and whether a line begins there that is not the first with text of
the record, nor blank; no class of its own, which would take longer to make than all else that is done with a line."""

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
    run: list[_Opened] = []
    cut, lines, characters = False, 0, 0
    for opened in _opened(record, boundary):
        text, marks, begins_line = opened
        if marks & OPENS_PARAGRAPH:
            if run:
                yield from _closed(run, cut, ENDS_DOCUMENT if marks & OPENS_DOCUMENT else 0)
            run, cut, lines, characters = [], False, 1, 0
        elif begins_line:
            lines += 1
        run.append(opened)
        characters += len(text)
        cut = cut or lines > LONGEST_LINES or characters > LONGEST_TEXT
        if cut:
            yield from _closed(run[:-1], cut, 0)
            del run[:-1]
    if run:
        yield from _closed(run, cut, ENDS_DOCUMENT)


def _opened(record: Iterable[Piece], boundary: Boundary) -> Iterator[_Opened]:
    first, has_text, blank_before = True, False, True
    for piece, blank, blank_after in _with_blanks(record):
        marks = ENDS_LINE if piece.ends_line else 0
        begins_line = has_text and piece.starts_line and not blank
        if first:
            marks |= OPENS_DOCUMENT | OPENS_PARAGRAPH
        elif begins_line:
            if boundary(piece.text, blank_before, blank_after):
                marks |= OPENS_DOCUMENT | OPENS_PARAGRAPH
            elif blank_before:
                marks |= OPENS_PARAGRAPH
        yield piece.text, marks, begins_line
        first, has_text, blank_before = False, has_text or not blank, blank


def _closed(run: Sequence[_Opened], cut: bool, ending: int) -> Iterator[MarkedPiece]:
    """The pieces of a run of lines, each of which opens a paragraph if it is too long for one.

    `ending`: a mark of its last piece.
    """
    last = len(run) - 1
    for number, (text, marks, begins_line) in enumerate(run):
        opening = OPENS_PARAGRAPH if cut and begins_line else 0
        yield MarkedPiece(text, marks | opening | (ending if number == last else 0))


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
