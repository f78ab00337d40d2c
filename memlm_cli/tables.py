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
    from rich.console import JustifyMethod

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
    min_width: int
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
    cells = [[_styled(cell, terminal) for cell in row] for row in rows]
    table_columns = []
    for number, header in enumerate(columns):
        table_columns.append(_column(header, [row[number] for row in cells]))
    return (
        _table_for_terminal(title, table_columns, len(cells), whole=whole)
        if terminal
        else _plain_table(title, table_columns, cells)
    )


def _styled(cell: Cell, terminal: bool) -> tuple[str, str]:
    """Text and style of a cell; elsewhere than on a terminal there are no styles."""
    return _plain(cell), "" if isinstance(cell, str) or not terminal else cell[1]


def _plain_table(
    title: str, columns: Sequence[Column], cells: Sequence[Sequence[tuple[str, str]]]
) -> str:
    """A line of any length for each row, for grep and awk."""
    lines = [title] if title else []
    headers = [column.header for column in columns]
    if any(headers):
        lines.append(_line(headers, columns))
    for row in cells:
        lines.append(_line([text for text, _ in row], columns))
    return "\n".join(lines)


def _table_for_terminal(title: str, columns: Sequence[Column], rows: int, *, whole: bool) -> str:
    from rich.console import Console

    width = Console(file=io.StringIO(), force_terminal=True).width
    lines = []
    if title:
        head = (title, "")
        lines += _grid([[head]], [(_column("", [head]), width)])

    all_parts = list(parts(columns, width))
    for number, part in enumerate(all_parts if whole else all_parts[:1]):
        if number:
            lines.append("")
        if any(column.header for column in columns):
            headers = [(column.header, "bold") for column, _ in part]
            lines += _grid([headers], part, foot=True)
            rule = sum(column_width for _, column_width in part) + GAP * (len(part) - 1)
            lines.append("─" * rule)
        body = []
        for row in range(rows):
            body.append([column.cells[row] for column, _ in part])
        lines += _grid(body, part)
    return "\n".join(lines)


def table_text(shown: "Table", *, terminal: bool) -> str:
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
    max_lead = max(1, width // 2) if others else width
    lead = min(first.min_width, max_lead)
    part = [(first, lead)]
    used = lead
    for column in others:
        column_width = min(column.min_width, max(1, width - lead - GAP))
        if used + GAP + column_width > width and len(part) > 1:
            yield _spread(part, width)
            part = [(first, lead)]
            used = lead
        part.append((column, column_width))
        used += GAP + column_width
    yield _spread(part, width)


def _spread(part: Sequence[tuple[Column, int]], width: int) -> list[tuple[Column, int]]:
    """Distribute the spare width among columns that need more, small needs first."""
    columns = [column for column, _ in part]
    widths = [column_width for _, column_width in part]
    needs = [column.full - column_width for column, column_width in part]
    spare = width - sum(widths) - GAP * (len(part) - 1)

    order = sorted(range(len(part)), key=needs.__getitem__)
    for num_served, place in enumerate(order):
        # what a column leaves of its equal share goes to those after it
        equal_share = spare // (len(part) - num_served)
        more = max(0, min(needs[place], equal_share))
        widths[place] += more
        spare -= more
    return list(zip(columns, widths, strict=True))


def _column(header: str, cells: Sequence[tuple[str, str]]) -> Column:
    """Make a column: headers and texts wrap between words; figures stay in one piece."""
    from rich.cells import cell_len

    texts = [text for text, _ in cells]
    figures = all(map(_is_figure, texts))
    widest = max(map(cell_len, texts), default=0)
    min_width = widest
    if not figures:
        words = [word for text in texts for word in text.split()]
        longest_word = max(map(cell_len, words), default=0)
        min_width = max(min(longest_word, LONGEST_WORD), min(widest, READABLE))
    heading = max(map(cell_len, header.split()), default=0)
    return Column(header, cells, figures, max(min_width, heading), max(widest, cell_len(header)))


def _is_figure(text: str) -> bool:
    """Whether a cell is a figure, or empty."""
    return not text or (FIGURE.match(text) is not None and len(text) <= LONGEST_FIGURE)


def _line(row: Sequence[str], columns: Sequence[Column]) -> str:
    """A row of unwrapped cells, without the time that importing rich takes."""
    from rich.cells import cell_len

    cells = []
    for text, column in zip(row, columns, strict=True):
        blanks = " " * (column.full - cell_len(text))
        cells.append(blanks + text if column.figures else text + blanks)
    return (" " * GAP).join(cells).rstrip()


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

    if not rows:
        return []
    vertical: VerticalAlignMethod = "bottom" if foot else "top"
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for column, width in columns:
        justify: JustifyMethod = "right" if column.figures else "left"
        grid.add_column(width=width, justify=justify, vertical=vertical, overflow="fold")
    for row in rows:
        grid.add_row(*(Text.assemble((text, style)) for text, style in row))
    room = sum(width + GAP for _, width in columns)
    # Exactly as wide as its columns, so that rich never truncates a figure.
    console = Console(file=io.StringIO(), width=room, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()]


def _plain(cell: Cell) -> str:
    """The text of a cell in one line."""
    text = cell if isinstance(cell, str) else cell[0]
    return text if text.isprintable() else " ".join(harmless(text).split())
