"""Tables for people: drawn by rich in a terminal, as wide as it at the most; plain aligned text elsewhere."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memlm_cli.console import answer, answers_on_terminal, harmless, on_terminal, say
from stages import numbers
from stages.reporting import first_process

if TYPE_CHECKING:
    from rich.align import VerticalAlignMethod

Cell = str | tuple[str, str]
"""A text, shown as it is; or a text and the style that a terminal gives it, as rich calls it."""
Row = Sequence[Cell]
FIGURE = re.compile(r"\(?[+\-−]?(\.?\d|$)")
"""How a figure begins, and a sign alone for one that is not there; `--store` is none."""
LONGEST_FIGURE = 32
"""`-10.0% [-12.0, -8.1]`; what is longer is a text that begins with a number."""
GAP = 2
"""Blanks between two columns."""
READABLE = 20
"""A column of texts is made narrower than they are, down to this: a few words."""
LONGEST_WORD = 28
"""Longer ones, paths and lines of scripts without blanks, are folded."""


@dataclass(frozen=True)
class Column:
    """Header and cells of a column, and the widths that it may have, in cells of a terminal."""

    header: str
    cells: Sequence[tuple[str, str]]
    """Texts and their styles."""
    figures: bool
    least: int
    full: int


def table(
    title: str, columns: Sequence[str], rows: Iterable[Row], *, terminal: bool = False, whole: bool = True
) -> str:
    """A table as text; columns that hold figures stand to the right.

    Args:
        title: the line above it; empty for none.
        columns: headers; all empty for none.
        rows: cells, as many as headers each.
        terminal: whether a terminal shows it, which gives it colour, and whose lines it is made to fit: texts go on
            in another line, and columns for which there is no room follow below, each part led by the first column.
        whole: False: these columns are left out.
    """
    cells = [[(_plain(cell), "" if isinstance(cell, str) or not terminal else cell[1]) for cell in row] for row in rows]
    held = [_column(header, [row[number] for row in cells]) for number, header in enumerate(columns)]
    # Elsewhere a row is a line of any length, for grep and awk.
    if not terminal:
        heads = [[one.header for one in held]] * any(columns)
        lines = [_line(row, held) for row in heads + [[text for text, _ in row] for row in cells]]
        return "\n".join([title] * bool(title) + lines)
    width = _terminal_width()
    lines = _grid([[(title, "")]], [(_column("", [(title, "")]), width)]) if title else []
    shown = list(parts(held, width))
    for number, part in enumerate(shown if whole else shown[:1]):
        lines += [""] * bool(number)
        if any(columns):
            lines += _grid([[(one.header, "bold") for one, _ in part]], part, foot=True)
            lines.append("─" * (sum(of for _, of in part) + GAP * (len(part) - 1)))
        lines += _grid([[one.cells[row] for one, _ in part] for row in range(len(cells))], part)
    return "\n".join(lines)


def cell_text(value: Any) -> str:
    """How a figure stands in a cell; None: an empty one."""
    if value is None:
        return ""
    return str(value) if isinstance(value, bool | str) else numbers.number(value)


def title_of(*parts: str) -> str:
    """Title of a table, in one line."""
    return ", ".join(filter(None, parts))


def answer_table(columns: Sequence[str], rows: Iterable[Row], *, whole: bool = True) -> None:
    """A table that was asked for, on stdout; `whole` as above."""
    answer(table("", columns, rows, terminal=answers_on_terminal(), whole=whole), styled=True)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Row], *, whole: bool = True) -> None:
    """A table on stderr, an empty line before it; `whole` as above."""
    if first_process():
        say("\n" + table(title, columns, rows, terminal=on_terminal(), whole=whole), styled=True)


def parts(columns: Sequence[Column], width: int) -> Iterator[list[tuple[Column, int]]]:
    """The columns, and their widths, of each part that a table falls into; the first column leads each part.

    rich would cut figures short where columns have no room. Where one column beside the first is wider than all there
    is, it is folded.
    """
    if not columns:
        return
    first, *others = columns
    lead = min(first.least, max(1, width // 2)) if others else min(first.least, width)
    part, used = [(first, lead)], lead
    for one in others:
        least = min(one.least, max(1, width - lead - GAP))
        if used + GAP + least > width and len(part) > 1:
            yield _spread(part, width)
            part, used = [(first, lead)], lead
        part.append((one, least))
        used += GAP + least
    yield _spread(part, width)


def _spread(part: Sequence[tuple[Column, int]], width: int) -> list[tuple[Column, int]]:
    """Give the rest of a line to the columns that need more, little needs first."""
    left = width - sum(least for _, least in part) - GAP * (len(part) - 1)
    needs = sorted((one.full - least, place) for place, (one, least) in enumerate(part))
    widths = [least for _, least in part]
    for served, (need, place) in enumerate(needs):
        more = max(0, min(need, left // (len(needs) - served)))
        widths[place] += more
        left -= more
    return [(one, of) for (one, _), of in zip(part, widths, strict=True)]


def _column(header: str, cells: Sequence[tuple[str, str]]) -> Column:
    """Headers break between words, and so do texts; figures stay in one piece."""
    from rich.cells import cell_len

    figures = all(not cell or (FIGURE.match(cell) and len(cell) <= LONGEST_FIGURE) for cell, _ in cells)
    widest = max((cell_len(cell) for cell, _ in cells), default=0)
    words = max((cell_len(word) for cell, _ in cells for word in cell.split()), default=0)
    least = widest if figures else max(min(words, LONGEST_WORD), min(widest, READABLE))
    heading = max(map(cell_len, header.split()), default=0)
    return Column(header, cells, figures, max(least, heading), max(widest, cell_len(header)))


def _line(row: Sequence[str], columns: Sequence[Column]) -> str:
    """A row of whole cells, without what rich would take to be imported."""
    from rich.cells import cell_len

    blanks = [" " * (one.full - cell_len(text)) for text, one in zip(row, columns, strict=True)]
    padded = [
        blank + text if one.figures else text + blank for text, blank, one in zip(row, blanks, columns, strict=True)
    ]
    return (" " * GAP).join(padded).rstrip()


def _grid(
    rows: Sequence[Sequence[tuple[str, str]]], columns: Sequence[tuple[Column, int]], foot: bool = False
) -> list[str]:
    """Lines of cells in columns of the given widths; `foot`: cells with fewer lines stand below, as in headers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, GAP, 0, 0))
    for one, width in columns:
        vertical: VerticalAlignMethod = "bottom" if foot else "top"
        grid.add_column(width=width, justify="right" if one.figures else "left", vertical=vertical, overflow="fold")
    for row in rows:
        grid.add_row(*(Text.assemble((text, style)) for text, style in row))
    room = sum(width + GAP for _, width in columns)
    # As wide as its columns, so that rich never shortens a figure by itself.
    console = Console(file=io.StringIO(), width=room, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()] if rows else []


def _terminal_width() -> int:
    from rich.console import Console

    return Console(file=io.StringIO(), force_terminal=True).width


def _plain(cell: Cell) -> str:
    """The text of a cell in one line."""
    text = cell if isinstance(cell, str) else cell[0]
    return text if text.isprintable() else " ".join(harmless(text).split())
