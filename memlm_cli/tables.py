"""Tables for people: rich on a terminal, plain aligned text elsewhere."""

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from memlm_cli.console import on_terminal, say
from stages.reporting import first_process

if TYPE_CHECKING:
    from rich.text import Text

Cell = str | tuple[str, str]
"""A text, shown as it is; or a text and the style that a terminal gives it, as rich calls it."""
Row = Sequence[Cell]
FIGURES = tuple("+-−.0123456789")
"""What a figure begins with, behind a parenthesis perhaps."""


def table(title: str, columns: Sequence[str], rows: Iterable[Row], *, terminal: bool = False) -> str:
    """A table as text; columns that hold figures stand to the right.

    Args:
        title: the line above it; empty for none.
        columns: headers; all empty for none.
        rows: cells, as many as headers each.
        terminal: whether a terminal shows it, which then wraps it and gives it colour.
    """
    kept = list(rows)
    lines = _drawn(columns, kept) if terminal else _aligned(columns, kept)
    return "\n".join([title, *lines] if title else lines)


def _drawn(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = [[_text(cell) for cell in row] for row in rows]
    drawn = Table(box=box.SIMPLE_HEAD, show_header=any(columns))
    for number, column in enumerate(columns):
        figures = all(_is_figure(row[number].plain) for row in cells)
        drawn.add_column(_text(column), justify="right" if figures else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*row)
    sink = io.StringIO()
    Console(file=sink, force_terminal=True, highlight=False).print(drawn)
    return [line.rstrip() for line in sink.getvalue().strip("\n").splitlines()]


def _aligned(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Plain lines, two blanks between columns; rich takes seconds for ten thousand of them."""
    from rich.cells import cell_len

    cells = [[_plain(cell) for cell in row] for row in rows]
    figures = [all(_is_figure(row[number]) for row in cells) for number in range(len(columns))]
    lines = [list(columns), *cells] if any(columns) else cells
    widths = [max((cell_len(line[number]) for line in lines), default=0) for number in range(len(columns))]

    def aligned(line: Sequence[str]) -> str:
        blanks = [" " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        placed = (b + cell if right else cell + b for cell, b, right in zip(line, blanks, figures, strict=True))
        return "  ".join(placed).rstrip()

    return [aligned(line) for line in lines]


def _plain(cell: Cell) -> str:
    """The text of a cell in one line."""
    text = cell if isinstance(cell, str) else cell[0]
    return text if text.isprintable() else " ".join(_text(text).plain.split())


def show_table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A table on stderr, an empty line before it."""
    if first_process():
        say("\n" + table(title, columns, rows, terminal=on_terminal()), styled=True)


def _text(cell: Cell) -> "Text":
    """A cell in which nothing is markup."""
    from rich.text import Text

    return Text(cell) if isinstance(cell, str) else Text(*cell)


def _is_figure(cell: str) -> bool:
    return not cell or cell.lstrip("(")[:1] in FIGURES
