"""A figure on a page, in a file and as a picture."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stages.charts.data import Chart, Line, Lines, Table
from stages.charts.drawing.draw import draw, figures
from stages.charts.drawing.files import write_figures
from stages.charts.drawing.palette import DARK, LIGHT, file_style, page_style

SVG = "{http://www.w3.org/2000/svg}"


def chart(name: str = "loss", value: float | None = 2.0) -> Chart:
    plot = Lines([Line("λ <0.3>", [(1, 1.0), (2, value)] if value else [])], "x", "y")
    return Chart(name, "A <title> & more", "what is to be seen", plot, Table(("x", "y"), [(1, 0.1 + 0.2), (2, None)]))


def test_a_file_has_its_title_and_its_words_escaped() -> None:
    root = ElementTree.fromstring(draw(chart()).svg)
    assert root.findtext(f"{SVG}title") == "A <title> & more"
    assert root.findtext(f"{SVG}desc") == "what is to be seen"
    assert {"A <title> & more", "λ <0.3>"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_a_file_bears_its_colours_and_a_page_those_of_the_reader() -> None:
    """Programs that make a PDF or a picture of an SVG know no variables."""
    assert "var(" not in draw(chart()).svg and "@media" not in draw(chart()).svg
    used = set(re.findall(r"var\(--([\w-]+)\)", page_style()))
    assert used == set(LIGHT) == set(DARK)
    assert all(colour in page_style() for colour in (*LIGHT.values(), *DARK.values()))
    assert set(re.findall("#[0-9a-f]{6}", file_style())) <= set(LIGHT.values())


def test_numbers_have_all_their_digits() -> None:
    assert draw(chart()).csv == "x,y\n1,0.30000000000000004\n2,\n"


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
    assert contents[1].startswith(b"\x89PNG") and contents[2] == draw(chart()).csv.encode()
    assert contents == [draw(chart()).svg.encode(), draw(chart()).png, draw(chart()).csv.encode()]


def test_a_picture_has_words_on_a_machine_without_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    import resvg_py

    figure, render = draw(chart()), resvg_py.svg_to_bytes
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **options: render(**options, skip_system_fonts=True))
    with_words = figure.png
    monkeypatch.setattr(
        resvg_py,
        "svg_to_bytes",
        lambda svg_string, zoom, font_files: render(svg_string=svg_string, zoom=zoom, skip_system_fonts=True),
    )
    assert len(with_words) > 1.5 * len(figure.png)
