"""The common form of all tables: terminals, pages, comparisons and notebooks draw it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stages.numbers import tenths
from stages.reports.measures import measured


class Cell(NamedTuple):
    """A cell of a table: its text, and its value with all digits."""

    text: str
    value: Any = None
    soft: str = ""
    """Less prominent text after it: an interval, a number of seeds."""
    mark: str = ""
    """Marks, separated by spaces: `best`, `ties`."""
    link: str = ""
    """An anchor of the page."""

    @property
    def plain(self) -> str:
        """All of it in one line."""
        return " ".join(filter(None, (self.text, self.soft, self.mark)))


class Note(NamedTuple):
    """A line under a row: the settings of a memory, and which of them were tuned."""

    head: str
    text: str
    soft: str

    @property
    def plain(self) -> str:
        """All of it in one line."""
        return f"{self.head}, {self.text}{f' ({self.soft})' if self.soft else ''}".replace(
            "\N{NO-BREAK SPACE}", " "
        )


class Row(NamedTuple):
    """A line; the first cell names it."""

    cells: Sequence[Cell]
    notes: Sequence[Note] = ()
    lowest: bool = False


class Group(NamedTuple):
    """Lines under a common head; None: without one."""

    rows: Sequence[Row]
    head: Cell | None = None
    anchor: str = ""


@dataclass(frozen=True)
class Table:
    """Lines in groups, under headers."""

    title: str
    columns: Sequence[str]
    groups: Sequence[Group]
    caption: str = ""
    """Explanation of the table on a page."""
    words: frozenset[str] = frozenset()
    """Columns with words; all other columns except the first have figures."""

    @property
    def rows(self) -> list[Row]:
        """The lines of all groups."""
        return [row for group in self.groups for row in group.rows]

    @property
    def lines(self) -> list[list[str]]:
        """Cells as text; heads of several groups are lines of their own."""
        rows = []
        for group in self.groups:
            if group.head is not None and len(self.groups) > 1:
                rows.append([group.head.text, *[""] * (len(self.columns) - 1)])
            rows += [[cell.plain for cell in row.cells] for row in group.rows]
        return rows


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of texts without groups."""
    return Table(
        title, columns, [Group([Row([Cell(text) for text in row]) for row in rows])], title
    )


def figure(value: float | None, measure: str = "perplexity", soft: str = "") -> Cell:
    """A figure of merit with the usual number of decimals of its measure; empty for None."""
    return Cell("") if value is None else Cell(measured(value, measure), value, soft)


def share(value: float | None, sign: str = "") -> Cell:
    """A share in percent; empty for None."""
    return Cell("") if value is None else Cell(f"{tenths(value, sign)}%", value)


def score_cell(metrics: Mapping[str, Any], value: float | None, sign: str = "") -> Cell:
    """A score of a stream of tasks, or with a sign a change of one: accuracies in percent,
    perplexities as numbers.
    """
    if not metrics.get("score"):
        return share(value, sign)
    return figure(value) if value is None or not sign else Cell(f"{value:{sign}.2f}", value)


def change(share: float | None, interval: Sequence[float] | None = None) -> Cell:
    """A change in percent, with its interval: `-12.3% [-14.0, -10.1]`."""
    if share is None:
        return Cell("")
    around = "" if interval is None else f"[{', '.join(tenths(edge, '+') for edge in interval)}]"
    return Cell(f"{tenths(share, '+')}%", share, around)
