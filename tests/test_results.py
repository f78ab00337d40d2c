"""The results pages are made from data, and their prose quotes it."""

import doctest
import re
import sys
from pathlib import Path

import pytest

from stages.charts.figure import Figure
from tests.conftest import drawing

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs/site"))

import results  # noqa: E402

PAGES = sorted((ROOT / "docs/results").glob("*.md"))
DATA = sorted((ROOT / "docs/results/data").glob("*/*.toml"))
FIGURE = re.compile(r"(?<![\w.,/-])(?:\d[\d,]*)?\.\d+|(?<![\w.,/-])\d[\d,]*(?= %)")
"""Numbers with a point, and percentages: what can be measured wrongly."""


@pytest.mark.parametrize("file", DATA, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_table_says_how_it_is_made_again_or_why_it_cannot_be(file: Path) -> None:
    """A table has commands, or a reason why they are lost; what it builds on has the first ones."""
    seen = set[str]()
    name = f"{file.parent.name}/{file.stem}"
    while name:
        assert name not in seen, f"{name} comes after itself"
        seen.add(name)
        table = results.read(*name.split("/"))
        assert table.get("command") or table.get("lost"), f"{name} has neither command nor lost"
        name = table.get("after", "")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_tables_are_those_of_the_data(page: Path) -> None:
    text = page.read_text("utf-8")
    assert results.with_tables(text, page.stem) == text, "run python docs/site/results.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_file_of_data_stands_on_its_page(page: Path) -> None:
    shown = set(re.findall(rf"\]\(data/{page.stem}/([\w-]+)\.toml\)", page.read_text("utf-8")))
    assert shown == {path.stem for path in (ROOT / "docs/results/data" / page.stem).glob("*.toml")}


def marks(svg: str) -> tuple[list[str], list[str]]:
    """All words and paths of a drawing."""
    return re.findall("<(?:text|title|desc)[^>]*>(.*?)</", svg), re.findall(' d="(.*?)"', svg, re.S)


def test_charts_are_those_of_the_data_and_every_page_with_data_has_one() -> None:
    drawn, pages = set(), set()
    for page, name, chart in results.charts():
        svg = (results.CHARTS / f"{chart.name}.svg").read_text("utf-8")
        with drawing():
            expected = Figure.of(chart).svg
        assert marks(svg) == marks(expected), f"{name}: docs/site/results.py draws it"
        assert f"](charts/{chart.name}.svg)" in (results.RESULTS / f"{page}.md").read_text("utf-8")
        drawn.add(f"{chart.name}.svg")
        pages.add(page)
    assert drawn == {file.name for file in results.CHARTS.iterdir()}
    assert pages == {file.parent.name for file in DATA}
    assert {page.stem for page in PAGES} - pages <= {"gpu"}  # until something is measured


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_figures_of_the_prose_are_those_of_the_data(page: Path) -> None:
    measured = {_plain(figure) for figure in FIGURE.findall("\n".join(map(_words, DATA)))}
    prose = re.sub(
        r"^    .*$|^\|.*$|\]\([^)]*\)|`[^`]*`",
        "",
        results.MARKED.sub("", page.read_text("utf-8")),
        flags=re.M,
    )
    unknown = [figure for figure in FIGURE.findall(prose) if _plain(figure) not in measured]
    assert not unknown, f"{page.name}: {unknown}"


def test_numbers_keep_their_digits() -> None:
    assert doctest.testmod(results).failed == 0


def _words(file: Path) -> str:
    """All texts and cells of a file of data, as pages show them."""
    table = results.read(file.parent.name, file.stem)
    cells = [results.cell_text(cell) for row in table["rows"] for cell in row["cells"]]
    notes = [*table.get("notes", []), *table.get("details", [])]
    return "\n".join([table.get("setup", ""), *notes, *table["columns"], *cells])


def _plain(figure: str) -> str:
    """A figure without zeros that change nothing: 0.50 and .5 are one."""
    return str(float(figure.replace(",", "")))
