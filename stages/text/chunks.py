"""Lines of text, and pieces of lines too long to be held whole."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

LONGEST_PIECE = 65_536
"""Characters of a line beyond which it is cut."""


class Piece(NamedTuple):
    """A line with its newline, or a part of one."""

    text: str
    starts_line: bool
    ends_line: bool

    @property
    def is_blank(self) -> bool:
        """Whether this is a whole line of white space."""
        return self.starts_line and self.ends_line and self.text.isspace()


def pieces(blocks: Iterable[str]) -> Iterator[Piece]:
    """Cut text into lines, at "\\n" alone, and long lines at white space.

    The pieces depend on the text, not on how it came in blocks, and join to exactly the text.
    """
    rest, starts_line = "", True
    for block in blocks:
        first, *others = block.split("\n")
        rest += first
        for line in others:
            if len(rest) < LONGEST_PIECE:
                yield Piece(rest + "\n", starts_line, True)
            else:
                yield from _ended(rest + "\n", starts_line)
            rest, starts_line = line, True
        start = 0
        for cut in _cuts(rest, len(rest)):
            yield Piece(rest[start:cut], starts_line, False)
            start, starts_line = cut, False
        rest = rest[start:]
    if rest:
        yield from _ended(rest, starts_line)


def _ended(line: str, starts_line: bool) -> Iterator[Piece]:
    if len(line) <= LONGEST_PIECE:
        yield Piece(line, starts_line, True)
        return
    start = 0
    for cut in _cuts(line, len(line) - line.endswith("\n")):
        yield Piece(line[start:cut], starts_line, False)
        start, starts_line = cut, False
    yield Piece(line[start:], starts_line, True)


def _cuts(line: str, length: int) -> Iterator[int]:
    """Where to cut a line as long as what is left of it is too long: each time before the last single space in reach.

    There a byte-level tokenizer begins a new word in any case, so that the cut leaves no trace in the ids.
    Where there is none (in no language's text) the cut comes after LONGEST_PIECE characters.
    """
    start = 0
    while length - start > LONGEST_PIECE:
        space = line.rfind(" ", start + 1, start + LONGEST_PIECE)
        while space > 0 and (line[space - 1].isspace() or line[space + 1].isspace()):
            space = line.rfind(" ", start + 1, space)
        start = space if space > 0 else start + LONGEST_PIECE
        yield start
