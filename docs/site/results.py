"""Tables and charts of the documents, made from data: `python docs/site/results.py` writes them
into `docs/results`.

A page holds `<!-- table: NAME -->` … `<!-- end -->` for each `docs/results/data/PAGE/NAME.toml`.
Such a file has

    columns = ["what is compared", "measured", …]
    [[rows]]
    cells = ["TRIME", {mean = 128.1, interval = 3.4}, {percent = -15.7, low = -20.1, high = -11.3, of = "the cache"}]

and above them what is true of all rows: `setup`, `seeds`, `machine`, `date`, `command`. `after =
"PAGE/NAME"` names the table whose commands come first. `lost` says why a table cannot be made
again. `notes` are measurements of the same runs that have no row, `details` those that the page
leaves to the file. A cell is a text, a number, a mean with its interval, a change in percent with
its interval, or a list of these.

The page shows the columns numbered in `show`, rows without `more = true`, and commands of at most
two lines, and links the file for the rest. A page may also link a file without showing its table.

    [chart]
    title, caption, up = "Change of perplexity", "TRIME gains …", "change, %"
    bars = {here = 2, "the paper" = 3}

draws `docs/results/charts/PAGE-NAME.svg`: a group of bars a row from the numbered columns. It is
named by the row's first cell, or by its `bar`; where rows have one, the others are not drawn.

    lines = {across = 2, up = 3}

instead of `bars` draws a line through the rows of the same `line`; a row may lie on several (`line
= ["a", "b"]`).

    points = {across = 5, up = 2}

draws a named point for each row; `up` is in percent.

`level = {label = "the model alone", value = 99.7}` is a value across the whole
chart.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from stages.charts.data import Bars, Chart, Level, Line, Lines, Point, Points, Series
from stages.charts.figure import Figure
from stages.charts.palette import with_schemes

RESULTS = Path(__file__).resolve().parent.parent / "results"
CHARTS = RESULTS / "charts"
MARKED = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.S)
MINUS = "−"
LINES = 2
"""Lines of a command that a page shows."""


def main() -> int:
    """Write every page and chart that is not that of the data; returns how many there were."""
    changed = 0
    CHARTS.mkdir(exist_ok=True)
    for _, _, chart in charts():
        # The colours follow the reader's screen, light or dark.
        file, drawn = CHARTS / f"{chart.name}.svg", with_schemes(Figure.of(chart).svg)
        if not file.exists() or file.read_text("utf-8") != drawn:
            file.write_text(drawn, "utf-8")
            print(f"{file.name}: drawn")
            changed += 1
    for page in sorted(RESULTS.glob("*.md")):
        text = page.read_text("utf-8")
        made = with_tables(text, page.stem)
        if made != text:
            page.write_text(made, "utf-8")
            print(f"{page.name}: tables written")
            changed += 1
    return changed


def with_tables(text: str, page: str) -> str:
    """A page with its tables made from the data."""

    def table(marked: re.Match[str]) -> str:
        name = marked["name"]
        return f"<!-- table: {name} -->\n{markdown(read(page, name), f'data/{page}/{name}.toml')}\n<!-- end -->"

    return MARKED.sub(table, text)


def read(page: str, name: str) -> dict[str, Any]:
    """The data of a table, with numbers as they are written: 70.50 keeps its digits."""
    text = (RESULTS / "data" / page / f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text, parse_float=Decimal)


def charts() -> Iterator[tuple[str, str, Chart]]:
    """Page, table and chart of each table that has one."""
    for file in sorted(RESULTS.glob("data/*/*.toml")):
        table = read(file.parent.name, file.stem)
        if "chart" in table:
            (draw,) = (draw for kind, draw in KINDS.items() if kind in table["chart"])
            yield file.parent.name, file.stem, draw(f"{file.parent.name}-{file.stem}", table)


def line_chart(name: str, table: dict[str, Any]) -> Chart:
    """Lines through the rows that name them, from the columns that the `chart` names."""
    about, axes = table["chart"], table["chart"]["lines"]
    points: dict[str, list[tuple[float, float | None]]] = {}
    for row in table["rows"]:
        across = _value(row["cells"], axes["across"])
        if across is not None:
            for label in [row["line"]] if isinstance(row.get("line"), str) else row.get("line", []):
                points.setdefault(label, []).append((across, _value(row["cells"], axes["up"])))
    lines = [Line(label, sorted(through)) for label, through in points.items()]
    level = (
        Level(about["level"]["label"], float(about["level"]["value"])) if "level" in about else None
    )
    columns = table["columns"]
    ticks = [float(tick) for tick in about["ticks"]] if "ticks" in about else None
    plot = Lines(lines, columns[axes["across"]], columns[axes["up"]], ticks, even=True, level=level)
    return Chart(name, about["title"], about["caption"], plot)


def point_chart(name: str, table: dict[str, Any]) -> Chart:
    """A named point for each row that has both of the columns that the `chart` names."""
    about, axes = table["chart"], table["chart"]["points"]
    points = []
    for row in table["rows"]:
        up = _value(row["cells"], axes["up"])
        share = None if up is None else up / 100
        label = str(row.get("bar", row["cells"][0]))
        points.append(Point(label, _value(row["cells"], axes["across"]), share))
    across, up = (table["columns"][axes[way]] for way in ("across", "up"))
    return Chart(name, about["title"], about["caption"], Points(points, across, up, percent=True))


def bar_chart(name: str, table: dict[str, Any]) -> Chart:
    """The bars of a table's rows, from the columns that its `chart` names; a row without any is
    left out.
    """
    about, bars = table["chart"], table["chart"]["bars"]
    named = [row for row in table["rows"] if "bar" in row] or table["rows"]
    rows = [row["cells"] for row in named]
    values = {label: [_value(row, column) for row in rows] for label, column in bars.items()}
    drawn = [
        place
        for place, row in enumerate(zip(*values.values(), strict=True))
        if any(v is not None for v in row)
    ]
    groups = [str(named[place].get("bar", rows[place][0])) for place in drawn]
    series = [
        Series(
            label,
            [column[place] for place in drawn],
            [_interval(rows[place], bars[label]) for place in drawn],
        )
        for label, column in values.items()
    ]
    plot = Bars(groups, series, "", about["up"], about.get("signed", True))
    return Chart(name, about["title"], about["caption"], plot)


KINDS = {"lines": line_chart, "points": point_chart, "bars": bar_chart}
"""What draws a chart, by the key that names its columns."""


def _cell(cells: list[Any], column: int) -> Any:
    """A cell, or of a list its first measurement."""
    cell = cells[column] if column < len(cells) else ""
    return (
        next((one for one in cell if isinstance(one, dict)), cell[0])
        if isinstance(cell, list)
        else cell
    )


def _value(cells: list[Any], column: int) -> float | None:
    """The number of a cell, or the one that its text begins with; None where it has none."""
    cell = _cell(cells, column)
    if isinstance(cell, dict):
        cell = next((cell[kind] for kind in ("percent", "mean", "value") if kind in cell), "")
    begins = re.match(r"\d[\d,]*(\.\d+)?", str(cell)) if isinstance(cell, str) else None
    return (
        float(begins[0].replace(",", "") if begins else cell)
        if begins or isinstance(cell, (int, Decimal))
        else None
    )


def _interval(cells: list[Any], column: int) -> tuple[float, float] | None:
    cell = _cell(cells, column)
    if not isinstance(cell, dict):
        return None
    if "interval" in cell:
        return float(cell["mean"] - cell["interval"]), float(cell["mean"] + cell["interval"])
    return (float(cell["low"]), float(cell["high"])) if "low" in cell else None


def markdown(table: dict[str, Any], file: str) -> str:
    """What a page shows of a table, as Markdown; below it what is true of all rows, and a link
    where there is more.
    """
    columns, rows = table["columns"], table["rows"]
    shown = table.get("show", range(len(columns)))
    lines = [
        [columns[place] for place in shown],
        ["---"] * len(shown),
        *(
            [cell_text(row["cells"][place]) if place < len(row["cells"]) else "" for place in shown]
            for row in rows
            if not row.get("more")
        ),
    ]
    command = table.get("command", "").strip().splitlines()
    known = " ".join([*_about(table), f"[Data]({file})."])
    code = "\n".join(f"    {line}" for line in command if len(command) <= LINES)
    notes = "\n".join(f"- {note}" for note in table.get("notes", []))
    return "\n\n".join(part for part in ("\n".join(map(_line, lines)), known, code, notes) if part)


def _line(cells: list[str]) -> str:
    """A row of a Markdown table."""
    if cells[0] == "---":
        return "|---" * len(cells) + "|"
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _about(table: dict[str, Any]) -> list[str]:
    """Setup and seeds of a table, or its machine and date, a sentence each: what has no seeds is of
    a machine.
    """
    known = [table["setup"]] if "setup" in table else []
    if "seeds" in table:
        return [*known, "One seed." if table["seeds"] == 1 else f"{table['seeds']} seeds."]
    return known + [f"{table[name]}." for name in ("machine", "date") if name in table]


def cell_text(cell: Any) -> str:
    """A cell as Markdown.

    >>> cell_text({"percent": Decimal("-15.7"), "low": Decimal("-20.1"), "high": Decimal("-11.3"), "of": "the cache"})
    '−15.7 % [−20.1, −11.3] of the cache'
    >>> cell_text([{"mean": Decimal("7786"), "interval": 5108}, "diverged"])
    '7,786 ± 5,108; diverged'
    """
    if isinstance(cell, list):
        return "; ".join(map(cell_text, cell))
    if not isinstance(cell, dict):
        return number(cell) if isinstance(cell, (int, Decimal)) else str(cell)
    if "mean" in cell:
        text = f"{number(cell['mean'], cell.get('signed', False))} ± {number(cell['interval'])}"
    elif "percent" in cell:
        text = f"{number(cell['percent'], signed=cell.get('signed', True))} %" + _bounds(cell)
    else:
        text = number(cell["value"]) + _bounds(cell)
    text = f"{text} of {cell['of']}" if "of" in cell else text
    return f"**{text}**" if cell.get("best") else text


def _bounds(cell: dict[str, Any]) -> str:
    if "low" not in cell:
        return ""
    signed = "percent" in cell and cell["high"] > 0 and cell.get("signed", True)
    return f" [{number(cell['low'], signed)}, {number(cell['high'], signed)}]"


def number(value: int | Decimal, signed: bool = False) -> str:
    """A number as the pages show it: thousands with a comma, no zero before the point, a true
    minus.

    >>> number(Decimal("-0.50")), number(12345), number(Decimal("2.5"), signed=True)
    ('−.50', '12,345', '+2.5')
    """
    shown = f"{abs(value):,}"
    sign = MINUS if value < 0 else "+" if signed and value > 0 else ""
    return sign + (shown.removeprefix("0") if shown.startswith("0.") else shown)


if __name__ == "__main__":
    sys.exit(0 if main() >= 0 else 1)
