"""Nothing of a page runs off the right edge of a laptop or a phone without a handle to draw it by."""

from pathlib import Path

import pytest

from stages.artifacts.store import Store
from stages.comparison.page import page as comparison_page
from stages.inspection.page import page as passage_page
from stages.pages.lineage import find_reports
from stages.pages.page import build_page
from tests.stages.comparison.found import FOUND
from tests.stages.inspection.test_page import inspected, token
from tests.stages.pages import made
from tests.stages.web.browser import CHROMIUM, WIDTHS, measured

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")
LONG = "a-name-that-somebody-gave-without-a-thought-of-those-who-read-it-on-a-phone"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One of each kind, with long names, long words and long remarks."""
    folder = tmp_path_factory.mktemp("pages")
    store = Store(folder / "store")
    read = {"tokens": "tokens/none", "model": LONG, "datastore": LONG}
    report = made.chain(store, {"exclude": "window:128", "read": read})
    (store.root / "names" / "report" / "first").unlink()
    store.name(report, LONG)
    remarks = [f"{LONG * 3} against plain of the baseline: perplexity x 0.5"]
    report_page = build_page(find_reports([report.reference], store), lambda members: LONG * 4, lambda _: remarks)
    tokens = [token(LONG, 0.2, 0.4, 0.69, 0.25), token("  ", 0.4, 0.2, -0.69, 0.75)]
    texts = {"report": report_page.html, "passage": passage_page(inspected(*tokens)), "compare": comparison_page(FOUND)}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return [folder / f"{name}.html" for name in texts]


def test_nothing_runs_off_the_edge_without_a_handle(pages: list[Path], tmp_path: Path) -> None:
    found = measured(pages, tmp_path)
    assert [(one["page"], one["width"]) for one in found] == [(page.name, w) for page in pages for w in WIDTHS]
    assert {f"{one['page']} at {one['width']}": one["beyond"] for one in found if one["beyond"]} == {}
    phone = {one["page"]: one["handles"] for one in found if one["width"] == min(WIDTHS)}
    assert phone["report.html"] and phone["compare.html"], "tables and drawings are wider than a phone"
    assert not phone["passage.html"], "a passage has no columns on a phone"


def test_what_runs_off_is_found(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><p style='width: 800px'>wide</p><div style='overflow: hidden'><pre>" + "x" * 300)
    wide, narrow = measured([page], tmp_path)
    assert any("hides" in one for one in wide["beyond"])
    assert any(one.startswith("p.") for one in narrow["beyond"]) and "page 8" in "".join(narrow["beyond"])
