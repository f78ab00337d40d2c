"""Parallel text: files whose lines are translations of each other, read as pairs of sentences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from stages.errors import DataError
from stages.text.blocks import pieces, text_blocks
from stages.text.documents import ENDS_DOCUMENT, ENDS_LINE, OPENS_DOCUMENT, OPENS_PARAGRAPH, MarkedPiece
from stages.text.records import TextFile, json_line, numbered_lines, require_unicode

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
TRANSLATION = "translation"
"""Field of a record that may hold both sentences, by language."""


class AlignedFiles(NamedTuple):
    """Two files whose lines are pairs; or one of `.jsonl`, twice, each time with the field of a language."""

    source: TextFile
    target: TextFile


class Sentence(NamedTuple):
    """A line of text, without its end, and its number, from 1."""

    line: int
    text: str


@dataclass
class Pairs:
    """Pairs of some files, and how many were left out, once they have been read."""

    files: Sequence[AlignedFiles]
    scored: bool
    """Whether text is scored on them: then a pair that lacks one side is an error, and else it is left out."""
    kept: int = 0
    dropped: int = 0
    """Pairs of which one side, or both, are blank."""
    alike: int = 0
    """Pairs whose sides are the same text."""

    def pieces(self, side: Side) -> Iterator[MarkedPiece]:
        """One side, each sentence as a document of one paragraph; the sentence has neither newline nor a CR at its end.

        Raises: DataError, naming file and line, for files of unequal length and for lines that cannot be read.
        """
        self.kept = self.dropped = self.alike = 0
        for files in self.files:
            name: str | None = getattr(files, side).path.rpartition("/")[2]
            for pair in self._pairs(files):
                for piece in _marked(pair[side == "target"].text):
                    yield piece._replace(name=name)
                    name = None

    def _pairs(self, files: AlignedFiles) -> Iterator[tuple[Sentence, Sentence]]:
        for source, target in _read(files):
            blank = [not one.text.strip() for one in (source, target)]
            if any(blank):
                if self.scored and not all(blank):
                    place = f"{files[blank.index(True)].path}, line {source.line}"
                    raise DataError(
                        f"{place}: there is no text, but its partner has some. A score must cover all pairs: mend or "
                        "remove the line in both files."
                    )
                self.dropped += 1
                continue
            self.kept += 1
            self.alike += source.text == target.text
            yield source, target


def _read(files: AlignedFiles) -> Iterator[tuple[Sentence, Sentence]]:
    """All pairs of two files. Raises: DataError if one has fewer lines."""
    if files.source.format == "jsonl":
        yield from _records(files)
        return
    read = [0, 0]
    for source, target in zip_longest(*map(_sentences, files)):
        read = [count + (one is not None) for count, one in zip(read, (source, target), strict=True)]
        if source is not None and target is not None:
            yield source, target
    if read[0] != read[1]:
        lines = " and ".join(f"{file.path} {count:,} lines" for file, count in zip(files, read, strict=True))
        longer = files[read[0] < read[1]].path
        raise DataError(f"{lines}: they must be equal. Line {min(read) + 1:,} of {longer} has no partner.")


def _sentences(file: TextFile) -> Iterator[Sentence]:
    r"""The lines of a file; `\n` alone ends one, and one `\r` before it belongs to the end."""
    held: Sentence | None = None
    for number, line in numbered_lines(text_blocks(file.path, file.digest), file):
        if held is not None:
            yield held
        held = Sentence(number, line.removesuffix("\r"))
    if held is not None and held.text:  # behind the last newline there is no line
        yield held


def _records(files: AlignedFiles) -> Iterator[tuple[Sentence, Sentence]]:
    """The pairs of a `.jsonl` file, whose sentences are fields of a record, or of its field `translation`."""
    file = files.source
    for number, line in numbered_lines(text_blocks(file.path, file.digest), file):
        if line and not line.isspace():
            where = f"{file.path}, line {number}"
            record = json_line(where, line, "with the sentences of both languages")
            below = record.get(TRANSLATION)
            found = below if isinstance(below, dict) else record
            source, target = (Sentence(number, _field(where, found, one.column)) for one in files)
            yield source, target


def _field(where: str, record: Mapping[str, Any], field: str) -> str:
    text = record.get(field)
    if not isinstance(text, str) or "\n" in text:
        raise DataError(f'{where}: expected a JSON object with a field "{field}" that is a string of one line.')
    require_unicode(where, text)
    return text


def _marked(sentence: str) -> Iterator[MarkedPiece]:
    parts = [piece.text for piece in pieces([sentence])]
    for number, text in enumerate(parts):
        opens = OPENS_DOCUMENT | OPENS_PARAGRAPH if number == 0 else 0
        ends = ENDS_LINE | ENDS_DOCUMENT if number == len(parts) - 1 else 0
        yield MarkedPiece(text, opens | ends)
