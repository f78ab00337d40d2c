"""Pages and figures are written; what others wrote stays."""

from pathlib import Path

import pytest

from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.pages.lineage import find_reports
from stages.pages.page import Page, build_page, check_figures_folder, write_figures
from stages.web import check_page_file, write_page
from tests.stages.pages import made


@pytest.fixture
def page(tmp_path: Path) -> Page:
    store = Store(tmp_path / "store")
    return build_page(
        find_reports([made.chain(store).reference], store), lambda members: "", lambda report: []
    )


def test_a_page_replaces_a_page_and_nothing_else(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for html, replaces in (
        (page.html, False),
        (page.html, False),
        (page.html + " ", True),
        (page.html, True),
    ):
        check_page_file("--output", path)
        assert write_page("--output", path, html) is replaces
        assert path.read_text("utf-8") == html
    (tmp_path / "notes.html").write_text("<p>mine</p>")
    with pytest.raises(UsageError, match=r"notes\.html"):
        write_page("--output", tmp_path / "notes.html", page.html)
    assert (tmp_path / "notes.html").read_text() == "<p>mine</p>"
    with pytest.raises(UsageError, match="nowhere"):
        check_page_file("--output", tmp_path / "nowhere" / "page.html")
    with pytest.raises(UsageError, match="--output"):
        check_page_file("--output", tmp_path)
    with pytest.raises(UsageError, match=r"a page is written as HTML; name it paper\.html"):
        check_page_file("--output", tmp_path / "paper.pdf")


def test_figures_replace_figures_and_nothing_else(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    for _ in range(2):
        check_figures_folder(folder)
        files = write_figures(page, folder)
    assert sorted(files) == sorted(folder.iterdir())
    assert {figure.name for figure in page.figures} == {path.stem for path in folder.glob("*.svg")}
    assert (folder / "results.csv").read_text("utf-8") == page.tables["results"]
    (folder / "logo.svg").write_text("<svg/>")
    with pytest.raises(UsageError, match=r"logo\.svg"):
        check_figures_folder(folder)
    with pytest.raises(UsageError, match="no folder"):
        check_figures_folder(folder / "logo.svg")


def test_tables_of_others_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"results\.csv"):
        check_figures_folder(tmp_path)
