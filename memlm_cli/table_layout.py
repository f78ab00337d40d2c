"""How wide each column of a table is where lines are short: no figure is broken, and no column falls off the edge."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

GAP = 2
"""Blanks between two columns."""
READABLE = 20
"""A column of texts is made narrower than they are, down to this: a few words."""
LONGEST_WORD = 28
"""Longer ones, paths and lines of scripts without blanks, are folded."""


@dataclass(frozen=True)
class Column:
    """The widths that a column may have, in cells of a terminal."""

    least: int
    full: int
    """Width of its longest line."""


def column(header: str, cells: Sequence[str], figures: bool) -> Column:
    """Headers break between words, and so do texts; figures stay in one piece."""
    from rich.cells import cell_len

    widest = max(map(cell_len, cells), default=0)
    words = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
    least = widest if figures else max(min(words, LONGEST_WORD), min(widest, READABLE))
    heading = max(map(cell_len, header.split()), default=0)
    return Column(max(least, heading), max(widest, cell_len(header)))


def parts(columns: Sequence[Column], width: int) -> Iterator[list[tuple[int, int]]]:
    """The columns, and their widths, of each part that a table falls into; the first column leads each part.

    Where one column beside the first is wider than all there is, it is folded.
    """
    if not columns:
        return
    first, *others = range(len(columns))
    lead = min(columns[first].least, max(1, width // 2)) if others else min(columns[first].least, width)
    part, used = [(first, lead)], lead
    for place in others:
        least = min(columns[place].least, max(1, width - lead - GAP))
        if used + GAP + least > width and len(part) > 1:
            yield _spread(part, columns, width)
            part, used = [(first, lead)], lead
        part.append((place, least))
        used += GAP + least
    yield _spread(part, columns, width)


def _spread(part: Sequence[tuple[int, int]], columns: Sequence[Column], width: int) -> list[tuple[int, int]]:
    """Give the rest of a line to the columns that need more, little needs first."""
    left = width - sum(least for _, least in part) - GAP * (len(part) - 1)
    widths, wanting = dict(part), sorted(part, key=lambda one: columns[one[0]].full - one[1])
    for served, (place, least) in enumerate(wanting):
        more = max(0, min(columns[place].full - least, left // (len(wanting) - served)))
        widths[place] += more
        left -= more
    return list(widths.items())


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken between words where that is possible; at least one."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in _pieces(text.split(), width):
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def _pieces(words: Iterable[str], width: int) -> Iterator[str]:
    from rich.cells import chop_cells

    for word in words:
        yield from chop_cells(word, width)
