"""Tables for people: as wide as a terminal at the most, plain aligned text elsewhere."""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memlm_cli.console import answer, answers_on_terminal, harmless, on_terminal, say
from memlm_cli.table_layout import GAP, column, parts, wrapped
from stages import numbers
from stages.reporting import first_process

if TYPE_CHECKING:
    from stages.reports.tables import Table

Cell = str | tuple[str, str]
"""A text, shown as it is; or a text and the style that a terminal gives it, as rich calls it."""
Row = Sequence[Cell]
Cells = Sequence[Sequence[str]]
FIGURES = tuple("+-−.0123456789")
"""Characters that a figure begins with, perhaps after a parenthesis."""
LONGEST_FIGURE = 32
"""`-10.0% [-12.0, -8.1]`; what is longer is a text that begins with a number."""


def table(title: str, columns: Sequence[str], rows: Iterable[Row], *, terminal: bool = False) -> str:
    """A table as text; columns that hold figures stand to the right.

    Args:
        title: the line above it; empty for none.
        columns: headers; all empty for none.
        rows: cells, as many as headers each.
        terminal: whether a terminal shows it, which gives it colour, and whose lines it is made to fit: texts go on
            in another line, and columns for which there is no room follow below, each part led by the first column.
    """
    styles, cells = [], []
    for row in rows:
        styles.append([None if isinstance(cell, str) else cell[1] for cell in row])
        cells.append([_plain(cell) for cell in row])
    figures = [all(_is_figure(row[number]) for row in cells) for number in range(len(columns))]
    if not terminal:
        return "\n".join([title] * bool(title) + list(_aligned(columns, cells, figures)))
    width = _terminal_width()
    heading = wrapped(title, width) if title else []
    return "\n".join([*heading, *_lines(columns, cells, styles, figures, width)])


def cell_text(value: Any) -> str:
    """How a figure stands in a cell; None: an empty one."""
    if value is None:
        return ""
    return str(value) if isinstance(value, bool | str) else numbers.number(value)


def title_of(*parts: str) -> str:
    """Title of a table, in one line."""
    return ", ".join(filter(None, parts))


def answer_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A table that was asked for, on stdout."""
    answer(table("", columns, rows, terminal=answers_on_terminal()), styled=True)


def _aligned(columns: Sequence[str], cells: Cells, figures: Sequence[bool]) -> Iterator[str]:
    """One line a row, as wide as it comes."""
    from rich.cells import cell_len

    lines = [columns, *cells] if any(columns) else cells
    widths = [max((cell_len(line[number]) for line in lines), default=0) for number in range(len(columns))]
    for line in lines:
        yield _beside(list(map(_placed, line, widths, figures)))


def _lines(
    columns: Sequence[str], cells: Cells, styles: Sequence[Sequence[str | None]], figures: Sequence[bool], width: int
) -> Iterator[str]:
    """Lines of a terminal, with a rule under the headers."""
    widths = [column(header, [row[n] for row in cells], figures[n]) for n, header in enumerate(columns)]
    for number, part in enumerate(parts(widths, width)):
        places = [place for place, _ in part]
        placed = [(of, figures[place]) for place, of in part]
        if number:
            yield ""
        if any(columns):
            yield from _row([columns[place] for place in places], placed, ["bold"] * len(places), foot=True)
            yield "─" * (sum(of for of, _ in placed) + GAP * (len(placed) - 1))
        for row, style in zip(cells, styles, strict=True):
            yield from _row([row[place] for place in places], placed, [style[place] for place in places])


def _row(
    cells: Sequence[str], placed: Sequence[tuple[int, bool]], styles: Sequence[str | None], *, foot: bool = False
) -> Iterator[str]:
    """The lines of a row. `foot`: those of a cell with fewer are the last, as in headers."""
    wrapping = [wrapped(cell, width) for cell, (width, _) in zip(cells, placed, strict=True)]
    height = max(map(len, wrapping))
    for number in range(height):
        line = []
        for texts, (width, right), style in zip(wrapping, placed, styles, strict=True):
            at = number - (height - len(texts)) if foot else number
            text = texts[at] if 0 <= at < len(texts) else ""
            line.append(_styled(_placed(text, width, right), text, style))
        yield _beside(line)


def _placed(text: str, width: int, right: bool) -> str:
    from rich.cells import cell_len

    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


def _beside(cells: Sequence[str]) -> str:
    return (" " * GAP).join(cells).rstrip()


def _styled(placed: str, text: str, style: str | None) -> str:
    """A cell whose text alone has the style, not the blanks around it."""
    from rich.style import Style

    return placed.replace(text, Style.parse(style).render(text), 1) if style and text else placed


def _terminal_width() -> int:
    from rich.console import Console

    return Console(file=io.StringIO(), force_terminal=True).width


def _plain(cell: Cell) -> str:
    """The text of a cell in one line."""
    text = cell if isinstance(cell, str) else cell[0]
    return text if text.isprintable() else " ".join(harmless(text).split())


def show_table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A table on stderr, an empty line before it."""
    if first_process():
        say("\n" + table(title, columns, rows, terminal=on_terminal()), styled=True)


def show(shown: "Table", title: str = "") -> None:
    """A table of reports on stderr, an empty line before it."""
    if first_process():
        say("\n" + text_of(shown, title or shown.title, terminal=on_terminal()), styled=True)


def text_of(shown: "Table", title: str, *, terminal: bool) -> str:
    """A table of reports as text."""
    return table(title, shown.columns, shown.lines, terminal=terminal)


def _is_figure(cell: str) -> bool:
    return not cell or (cell.lstrip("(")[:1] in FIGURES and len(cell) <= LONGEST_FIGURE)
