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


def table(title: str, columns: Sequence[str], rows: Iterable[Row], *, terminal: bool = False) -> str:
    """A table as text; columns that hold figures stand to the right.

    Args:
        title: the line above it; empty for none.
        columns: headers; all empty for none.
        rows: cells, as many as headers each.
        terminal: whether a terminal shows it, which then wraps it and gives it colour.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = [[_text(cell) for cell in row] for row in rows]
    style = box.SIMPLE_HEAD if terminal else None
    drawn = Table(box=style, pad_edge=terminal, show_header=any(columns))
    for number, column in enumerate(columns):
        figures = all(_is_figure(row[number].plain) for row in cells)
        drawn.add_column(_text(column), justify="right" if figures else "left", overflow="fold", no_wrap=not terminal)
    for row in cells:
        drawn.add_row(*row)
    sink = io.StringIO()
    width = None if terminal else 10_000
    Console(file=sink, width=width, force_terminal=terminal, highlight=False).print(drawn)
    lines = [line.rstrip() for line in sink.getvalue().strip("\n").splitlines()]
    return "\n".join([title, *lines] if title else lines)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A table on stderr, an empty line before it."""
    if first_process():
        say("\n" + table(title, columns, rows, terminal=on_terminal()), styled=True)


def _text(cell: Cell) -> "Text":
    """A cell in which nothing is markup."""
    from rich.text import Text

    return Text(cell) if isinstance(cell, str) else Text(*cell)


def _is_figure(cell: str) -> bool:
    return not cell or cell[0] in "+-−.0123456789"
