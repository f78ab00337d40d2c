"""Tables for people: drawn by rich within the width of a terminal; plain aligned text elsewhere."""

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

    from stages.reports.tables import Table

Cell = str | tuple[str, str]
"""A plain text; or a text and its style on a terminal, as rich names it."""
Row = Sequence[Cell]
FIGURE = re.compile(r"\(?[+\-−]?(\.?\d|$)")
"""The beginning of a figure, or a lone sign for a missing one; `--store` is not a figure."""
LONGEST_FIGURE = 32
"""Characters of the longest figure: `-10.0% [-12.0, -8.1]`; a longer cell is a text that begins
with a number.
"""
GAP = 2
"""Blanks between two columns."""
READABLE = 20
"""Minimum width to which a column of texts is narrowed: a few words."""
LONGEST_WORD = 28
"""Longer words, such as paths and script lines without blanks, are folded."""


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
    title: str,
    columns: Sequence[str],
    rows: Iterable[Row],
    *,
    terminal: bool = False,
    whole: bool = True,
) -> str:
    """A table as text; columns of figures are right-aligned.

    Args:
        title: the line above it; empty for none.
        columns: headers; all empty for none.
        rows: cells, one for each header.
        terminal: whether it is for a terminal: then it has colours and fits the width. Texts wrap,
            and columns without room follow below, in parts that each begin with the first column.
        whole: whether columns without room are shown at all.
    """
    cells = [
        [(_plain(cell), "" if isinstance(cell, str) or not terminal else cell[1]) for cell in row]
        for row in rows
    ]
    held = [
        _column(header, [row[number] for row in cells]) for number, header in enumerate(columns)
    ]
    # Elsewhere a row is a line of any length, for grep and awk.
    if not terminal:
        heads = [[one.header for one in held]] * any(columns)
        lines = [_line(row, held) for row in heads + [[text for text, _ in row] for row in cells]]
        return "\n".join([title] * bool(title) + lines)
    from rich.console import Console

    width = Console(file=io.StringIO(), force_terminal=True).width
    lines = _grid([[(title, "")]], [(_column("", [(title, "")]), width)]) if title else []
    shown = list(parts(held, width))
    for number, part in enumerate(shown if whole else shown[:1]):
        lines += [""] * bool(number)
        if any(columns):
            lines += _grid([[(one.header, "bold") for one, _ in part]], part, foot=True)
            lines.append("─" * (sum(of for _, of in part) + GAP * (len(part) - 1)))
        lines += _grid([[one.cells[row] for one, _ in part] for row in range(len(cells))], part)
    return "\n".join(lines)


def drawn(shown: "Table", *, terminal: bool) -> str:
    """A table of figures with its title, as text; `terminal` as in `table`."""
    return table(shown.title, shown.columns, shown.lines, terminal=terminal)


def cell_text(value: Any) -> str:
    """Text of a value in a cell; empty for None."""
    if value is None:
        return ""
    return str(value) if isinstance(value, bool | str) else numbers.number(value)


def title_of(*parts: str) -> str:
    """Title of a table, in one line."""
    return ", ".join(filter(None, parts))


def answer_table(columns: Sequence[str], rows: Iterable[Row], *, whole: bool = True) -> None:
    """Write a table to stdout as an answer; `whole` as in `table`."""
    answer(table("", columns, rows, terminal=answers_on_terminal(), whole=whole), styled=True)


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Row], *, whole: bool = True
) -> None:
    """Write a table to stderr after an empty line; `whole` as in `table`."""
    if first_process():
        say("\n" + table(title, columns, rows, terminal=on_terminal(), whole=whole), styled=True)


def parts(columns: Sequence[Column], width: int) -> Iterator[list[tuple[Column, int]]]:
    """The columns and their widths in each part of a table; every part begins with the first
    column.

    rich would truncate figures if columns had no room. A column that is too wide even next to the
    first alone is folded.
    """
    if not columns:
        return
    first, *others = columns
    lead = min(first.least, max(1, width // 2)) if others else min(first.least, width)
    part = [(first, lead)]
    used = lead
    for one in others:
        least = min(one.least, max(1, width - lead - GAP))
        if used + GAP + least > width and len(part) > 1:
            yield _spread(part, width)
            part = [(first, lead)]
            used = lead
        part.append((one, least))
        used += GAP + least
    yield _spread(part, width)


def _spread(part: Sequence[tuple[Column, int]], width: int) -> list[tuple[Column, int]]:
    """Distribute the spare width among columns that need more, small needs first."""
    left = width - sum(least for _, least in part) - GAP * (len(part) - 1)
    needs = sorted((one.full - least, place) for place, (one, least) in enumerate(part))
    widths = [least for _, least in part]
    for served, (need, place) in enumerate(needs):
        more = max(0, min(need, left // (len(needs) - served)))
        widths[place] += more
        left -= more
    return [(one, of) for (one, _), of in zip(part, widths, strict=True)]


def _column(header: str, cells: Sequence[tuple[str, str]]) -> Column:
    """Make a column: headers and texts wrap between words; figures stay in one piece."""
    from rich.cells import cell_len

    figures = all(
        not cell or (FIGURE.match(cell) and len(cell) <= LONGEST_FIGURE) for cell, _ in cells
    )
    widest = max((cell_len(cell) for cell, _ in cells), default=0)
    words = max((cell_len(word) for cell, _ in cells for word in cell.split()), default=0)
    least = widest if figures else max(min(words, LONGEST_WORD), min(widest, READABLE))
    heading = max(map(cell_len, header.split()), default=0)
    return Column(header, cells, figures, max(least, heading), max(widest, cell_len(header)))


def _line(row: Sequence[str], columns: Sequence[Column]) -> str:
    """A row of unwrapped cells, without the time that importing rich takes."""
    from rich.cells import cell_len

    blanks = [" " * (one.full - cell_len(text)) for text, one in zip(row, columns, strict=True)]
    padded = [
        blank + text if one.figures else text + blank
        for text, blank, one in zip(row, blanks, columns, strict=True)
    ]
    return (" " * GAP).join(padded).rstrip()


def _grid(
    rows: Sequence[Sequence[tuple[str, str]]],
    columns: Sequence[tuple[Column, int]],
    foot: bool = False,
) -> list[str]:
    """Lines of cells in columns of given widths; `foot`: cells with fewer lines are bottom-aligned,
    as in headers.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, GAP, 0, 0))
    for one, width in columns:
        vertical: VerticalAlignMethod = "bottom" if foot else "top"
        grid.add_column(
            width=width,
            justify="right" if one.figures else "left",
            vertical=vertical,
            overflow="fold",
        )
    for row in rows:
        grid.add_row(*(Text.assemble((text, style)) for text, style in row))
    room = sum(width + GAP for _, width in columns)
    # Exactly as wide as its columns, so that rich never truncates a figure.
    console = Console(file=io.StringIO(), width=room, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()] if rows else []


def _plain(cell: Cell) -> str:
    """The text of a cell in one line."""
    text = cell if isinstance(cell, str) else cell[0]
    return text if text.isprintable() else " ".join(harmless(text).split())
