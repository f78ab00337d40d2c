"""A figure on a page, in a file and as a picture."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stages.charts.data import Chart, Line, Lines
from stages.charts.figure import Figure, figures, write_figures
from stages.charts.palette import DARK, LIGHT, page_style

pytestmark = pytest.mark.usefixtures("drawn")

SVG = "{http://www.w3.org/2000/svg}"


def chart(name: str = "loss", value: float | None = 2.0) -> Chart:
    plot = Lines([Line("λ <0.3>", [(1, 1.0), (2, value)] if value else [])], "x", "y")
    return Chart(name, "A <title> & more", "what is to be seen", plot)


def test_a_file_has_its_title_and_its_words_escaped() -> None:
    root = ElementTree.fromstring(Figure.of(chart()).svg)
    assert root.findtext(f"{SVG}title") == "A <title> & more"
    assert root.findtext(f"{SVG}desc") == "what is to be seen"
    assert {"A <title> & more", "λ <0.3>"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_a_file_bears_its_colours_and_a_page_those_of_the_reader() -> None:
    """Programs that make a PDF or a picture of an SVG know no variables."""
    figure = Figure.of(chart())
    assert "var(" not in figure.svg and set(re.findall('"(#[0-9a-f]{6})"', figure.svg)) <= set(
        LIGHT.values()
    )
    assert not re.findall("#[0-9a-f]{6}", figure.inline)
    assert set(re.findall(r"var\(--([\w-]+)\)", figure.inline)) <= set(LIGHT) == set(DARK)
    assert all(
        f"--{name}: {colour};" in page_style()
        for one in (LIGHT, DARK)
        for name, colour in one.items()
    )


def test_the_same_numbers_give_the_same_bytes() -> None:
    assert (Figure.of(chart()).svg, Figure.of(chart()).png) == (
        Figure.of(chart()).svg,
        Figure.of(chart()).png,
    )


def test_a_point_says_its_numbers_under_the_pointer() -> None:
    marks = ElementTree.fromstring(Figure.of(chart()).svg).iter(f"{SVG}path")
    assert {words for mark in marks if (words := mark.findtext(f"{SVG}title"))} == {
        "λ <0.3>: 1 at x 1",
        "λ <0.3>: 2 at x 2",
    }


def test_numbers_have_all_their_digits() -> None:
    plot = Lines([Line("a", [(1, 0.1 + 0.2), (2, None)])], "x", "y")
    assert Chart("loss", "", "", plot).csv == "line,x,y\na,1,0.30000000000000004\na,2,\n"


def test_a_chart_beside_others_has_their_label() -> None:
    labelled = chart().labelled("My Report")
    assert (labelled.name, labelled.title) == ("loss-my-report", "My Report: A <title> & more")


def test_what_has_nothing_to_see_is_not_drawn(tmp_path: Path) -> None:
    assert [figure.name for figure in figures([chart("a"), chart("b", None)])] == ["a"]
    assert write_figures([chart("b", None)], tmp_path.joinpath) == []


def test_files_are_a_drawing_a_picture_and_the_numbers(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    files = write_figures([chart()], tmp_path.joinpath)
    assert files == ["figures/loss.svg", "figures/loss.png", "figures/loss.csv"]
    contents = [(tmp_path / file).read_bytes() for file in files]
    assert contents[1].startswith(b"\x89PNG") and contents[2] == Figure.of(chart()).csv.encode()
    assert contents == [
        Figure.of(chart()).svg.encode(),
        Figure.of(chart()).png,
        Figure.of(chart()).csv.encode(),
    ]
