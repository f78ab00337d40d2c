"""A figure on a page, in a file and as a picture."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.font_manager import findfont

from stages.charts.data import Chart, Line, Lines
from stages.charts.figure import Figure, figures, write_figures
from stages.charts.palette import DARK, LIGHT, page_style, with_schemes
from stages.charts.titles import FAMILY

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
    colour = "#[0-9a-f]{6}"
    assert "var(" not in figure.svg
    assert set(re.findall(colour, figure.svg)) <= set(LIGHT.values())
    assert not re.findall(colour, figure.inline)
    assert set(re.findall(r"var\(--([\w-]+)\)", figure.inline)) <= set(LIGHT) == set(DARK)
    for palette in (LIGHT, DARK):
        for name, value in palette.items():
            assert f"--{name}: {value};" in page_style()


def test_a_file_of_the_documents_has_a_dark_colour_for_every_light_one() -> None:
    svg = Figure.of(chart()).svg
    style, drawing = with_schemes(svg).split("</style>", 1)
    assert set(re.findall('[*]="(.*?)"', style)) == set(
        re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", drawing)
    )
    assert set(re.findall(r":(#[0-9a-f]{6}) !", style)) <= set(DARK.values())


def test_the_same_numbers_give_the_same_bytes() -> None:
    assert (Figure.of(chart()).svg, Figure.of(chart()).png) == (
        Figure.of(chart()).svg,
        Figure.of(chart()).png,
    )


def test_settings_and_time_of_a_machine_do_not_change_the_bytes(tmp_path: Path) -> None:
    """Another home, other settings of matplotlib, another day, no cache of fonts."""
    program = (
        "import hashlib; from tests.stages.charts.test_figure import Figure, chart;"
        "figure = Figure.of(chart());"
        "print(hashlib.blake2b(figure.svg.encode() + figure.png).hexdigest())"
    )
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 30\nsavefig.dpi: 300\n")
    other = {"MPLCONFIGDIR": str(tmp_path), "HOME": str(tmp_path), "SOURCE_DATE_EPOCH": "86400"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | other
    )
    figure = Figure.of(chart())
    here = hashlib.blake2b(figure.svg.encode() + figure.png).hexdigest()
    assert (done.stdout.strip(), done.stderr) == (here, "")


def test_the_font_is_the_one_that_matplotlib_brings() -> None:
    assert Path(findfont(FAMILY)).is_relative_to(matplotlib.get_data_path())


def test_letters_that_the_font_lacks_are_drawn_without_a_warning() -> None:
    plot = Lines([Line("中文", [(1, 1.0), (2, 2.0)])], "x", "y")
    figure = Figure.of(Chart("loss", "中", "", plot))
    assert "中文" in figure.svg
    assert figure.png.startswith(b"\x89PNG")


def test_identifiers_of_two_drawings_in_a_page_differ() -> None:
    identifiers = [
        found
        for name in ("a", "b")
        for found in re.findall(r'\bid="(.*?)"', Figure.of(chart(name)).inline)
    ]
    assert len(identifiers) == len(set(identifiers))


def test_a_long_title_is_broken_and_nothing_is_lost() -> None:
    title = "perplexity by cache size " * 8
    root = ElementTree.fromstring(Figure.of(Chart("a", title, "", chart().plot)).svg)
    lines = [text.text or "" for text in root.findall(f"{SVG}text")]
    assert len(lines) > 1
    assert " ".join(lines).split() == title.split()
    inner = root.find(f"{SVG}svg")
    assert inner is not None
    assert float(root.attrib["viewBox"].split()[1]) <= min(
        4 / 3 * float(text.attrib["y"].removesuffix("pt")) for text in root.findall(f"{SVG}text")
    )


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
