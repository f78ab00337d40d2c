"""Starts of documents and paragraphs, found piece by piece in a stream of text, and the names of
documents.

The name of a document is that of its file, or a field of its `.jsonl` record. Names are stored as
runs, one JSON object a line. `{"documents": 12, "name": "a.txt"}` means that the next 12 documents
have this name. Names are for people: no id and no digest depends on them.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import NamedTuple, Self

from stages.errors import content_of
from stages.text.files import Piece

OPENS_DOCUMENT = 1
ENDS_DOCUMENT = 2
OPENS_PARAGRAPH = 4
ENDS_LINE = 8

LONGEST_SPACE = 1024
"""Maximum characters of white space held in memory until text follows."""
LONGEST_LINES = 100
LONGEST_TEXT = 2**15
"""Lines and characters of the longest paragraph. In a longer run each line counts as a paragraph,
as with captions and sentences. At 70 columns the limit is two pages. Paragraphs of Python's
documentation, tiny Shakespeare and WikiText-2 have at most 94 lines. Memory holds up to this much
until a run ends."""


class MarkedPiece(NamedTuple):
    """A piece of text with the sum of its marks (see above)."""

    text: str
    marks: int
    name: str | None = None
    """New name for the documents from here on; None: no change."""


END = Piece("\n", starts_line=True, ends_line=True)
"""Stands for the blank that follows the last piece."""
_Opened = tuple[str, int, bool]
"""(text, marks of the units that open there, whether a non-blank line begins there that is not the
record's first). A plain tuple: making an object of a class would take longer than all other work on
a line."""

Boundary = Callable[[str, bool, bool], bool]
"""(line, whether the line before is blank, whether the line after is blank) -> whether a document
begins here.

Called only for non-blank lines, after the first non-blank line of the record. Blank lines belong to
the document before them, leading ones to the first.
"""


def is_title(line: str) -> bool:
    """Whether a line is a level-1 heading of WikiText, ` = Title = `, not of a deeper level."""
    line = line.rstrip("\n")
    outer = line.startswith(" = ") and line.endswith(" = ") and len(line) > len(" = = ")
    return outer and not line.startswith(" = = ") and not line.endswith(" = = ")


BOUNDARIES: dict[str, Boundary] = {
    "file": lambda line, before, after: False,
    "jsonl": lambda line, before, after: False,
    "line": lambda line, before, after: True,
    "blank-line": lambda line, before, after: before,
    # Text broken at " = " looks like a heading too, but has other lines around it:
    # WikiText-2 has 629 such lines in train and exactly its 600 articles with blank lines around.
    "wikitext": lambda line, before, after: before and after and is_title(line),
}


def mark(record: Iterable[Piece], boundary: Boundary) -> Iterator[MarkedPiece]:
    """Find documents and paragraphs in one record (a file, or the text of a JSON line).

    A record begins a document, whatever `boundary` says. A paragraph is a maximal run of lines that
    are not blank; like a document, it includes the blank lines after it. If a run is longer than
    LONGEST_LINES or LONGEST_TEXT, each of its lines is a paragraph.
    """
    run: list[_Opened] = []
    cut = False
    lines = 0
    characters = 0
    for opened in _opened(record, boundary):
        text, marks, begins_line = opened
        if marks & OPENS_PARAGRAPH:
            if run:
                yield from _closed(run, cut, ENDS_DOCUMENT if marks & OPENS_DOCUMENT else 0)
            run = []
            cut = False
            lines = 1
            characters = 0
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
    """Pieces of a record with the marks of what begins there; ends of documents are marked later."""
    is_first = True
    has_text = False
    blank = True
    blank_before = True
    for piece, after in pairwise(chain(record, [END])):
        text, starts_line, ends_line = piece
        if is_first:
            blank = piece.is_blank
        blank_after = after.is_blank
        marks = ENDS_LINE if ends_line else 0
        begins_line = has_text and starts_line and not blank
        if is_first:
            marks |= OPENS_DOCUMENT | OPENS_PARAGRAPH
        elif begins_line:
            if boundary(text, blank_before, blank_after):
                marks |= OPENS_DOCUMENT | OPENS_PARAGRAPH
            elif blank_before:
                marks |= OPENS_PARAGRAPH
        yield text, marks, begins_line

        is_first = False
        has_text = has_text or not blank
        blank_before = blank
        blank = blank_after


def _closed(run: Sequence[_Opened], cut: bool, ending: int) -> Iterator[MarkedPiece]:
    """The pieces of a run of lines. If the run is too long for a paragraph (`cut`), each line opens
    one.

    `ending`: a mark to add to its last piece.
    """
    last = len(run) - 1
    for number, (text, marks, begins_line) in enumerate(run):
        opening = OPENS_PARAGRAPH if cut and begins_line else 0
        yield MarkedPiece(text, marks | opening | (ending if number == last else 0))


class ParagraphHashes:
    """Digests of paragraphs in a stream of pieces: BLAKE2b-64 of a paragraph's text without the
    white space around it."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._digest = hashlib.blake2b(digest_size=8)
        self._beyond: hashlib.blake2b | None = None
        self._space = ""
        self._open = self._has_text = False

    def ended(self, pieces: Sequence[MarkedPiece]) -> Iterator[int]:
        """Take the next pieces, and give the hashes of the paragraphs that end with them, in order."""
        texts = [piece.text for piece in pieces]
        openings = [number for number, piece in enumerate(pieces) if piece.marks & OPENS_PARAGRAPH]
        if not openings:
            for text in texts:
                self._take(text)
            return

        # the paragraph that was begun earlier
        for text in texts[: openings[0]]:
            self._take(text)
        begun = self.finish()
        if begun is not None:
            yield begun

        # Paragraphs that begin and end here are hashed in one call, in a third of the time.
        for start, stop in pairwise(openings):
            paragraph = "".join(texts[start:stop]).strip()
            yield _number(hashlib.blake2b(paragraph.encode(), digest_size=8))

        # the last one may go on
        for text in texts[openings[-1] :]:
            self._take(text)

    def _take(self, text: str) -> None:
        """Add text to the paragraph under way."""
        self._open = True
        # White space at the ends is left out of the hash, because copies of a text differ in it.
        text = text if self._has_text else text.lstrip()
        body = text.rstrip()
        if body:
            self._digest = self._beyond or self._digest
            self._beyond = None
            self._digest.update((self._space + body).encode())
            self._has_text = True
            self._space = ""
        self._hold_back(text[len(body) :])

    def _hold_back(self, space: str) -> None:
        """Hold white space until text follows; only then it counts.

        A short run is kept as text, a long one goes into a second digest. A string that grows with
        every blank line would take quadratic time and unbounded memory.
        """
        self._space += space
        if len(self._space) > LONGEST_SPACE:
            self._beyond = self._beyond or self._digest.copy()
            self._beyond.update(self._space.encode())
            self._space = ""

    def finish(self) -> int | None:
        """End the current paragraph and return its hash; None if there is none."""
        value = _number(self._digest) if self._open else None
        self._begin()
        return value


def _number(digest: hashlib.blake2b) -> int:
    return int.from_bytes(digest.digest(), "little")


class NamedRun(NamedTuple):
    """Consecutive documents with the same name; None: the name is unknown."""

    documents: int
    name: str | None

    def dumps(self) -> str:
        """The run as a line of its file."""
        return json.dumps(self._asdict()) + "\n"


class NameRuns:
    """Runs of document names in a stream of pieces."""

    def __init__(self) -> None:
        self._documents = 0
        self._name = ""

    def add(self, piece: MarkedPiece) -> NamedRun | None:
        """Take the next piece; returns the run that ends before it, if any."""
        finished = None if piece.name is None else self.finish()
        self._name = self._name if piece.name is None else piece.name
        self._documents += bool(piece.marks & OPENS_DOCUMENT)
        return finished

    def finish(self) -> NamedRun | None:
        """The last run; None if there is none."""
        run = NamedRun(self._documents, self._name) if self._documents else None
        self._documents = 0
        return run


def read_runs(path: Path) -> Iterator[NamedRun]:
    """The runs in a file, in order. Raises: ArtifactError for a line that is no run."""
    with content_of(path), path.open(encoding="utf-8") as file:
        for line in file:
            run = NamedRun(**json.loads(line))
            if (
                type(run.documents) is not int
                or run.documents < 0
                or not isinstance(run.name, str | None)
            ):
                raise ValueError(f"{line[:60]!r} is no run of names")
            yield run


def runs_between(runs: Iterable[NamedRun], start: int, stop: int) -> Iterator[NamedRun]:
    """Runs of the documents [start, stop) only.

    >>> list(runs_between([NamedRun(3, "a"), NamedRun(2, "b"), NamedRun(9, "c")], 1, 4))
    [NamedRun(documents=2, name='a'), NamedRun(documents=1, name='b')]
    """
    end = 0
    for documents, name in runs:
        begin = end
        end = end + documents
        if begin >= stop:
            return
        if end > start:
            yield NamedRun(min(end, stop) - max(begin, start), name)


class DocumentNames:
    """Names of the documents of one split, by their number."""

    def __init__(self, runs: Iterable[NamedRun]) -> None:
        runs_in_order = list(runs)
        self._names = [run.name for run in runs_in_order]
        self._ends = list(accumulate(run.documents for run in runs_in_order))

    @classmethod
    def read(cls, folder: Path, split: str) -> Self:
        """Names in the folder of a tokens artifact. Artifacts from before names were stored have
        none.
        """
        path = folder / names_file(split)
        return cls(read_runs(path) if path.is_file() else ())

    def of(self, document: int) -> str | None:
        """Name of a document; None where it is not known."""
        run = bisect_right(self._ends, document)
        return self._names[run] if run < len(self._names) else None


def names_in(folder: Path, split: str) -> list[str]:
    """Distinct names of the documents of a split, in order; empty if no document has a name."""
    path = folder / names_file(split)
    return (
        list(dict.fromkeys(run.name for run in read_runs(path) if run.name))
        if path.is_file()
        else []
    )


def names_file(split: str) -> str:
    """Path, within a tokens artifact, of the names of a split."""
    return f"names/{split}.jsonl"
