"""Nothing of a page runs off the right edge of a laptop or a phone without a handle to draw it by."""

from pathlib import Path

import pytest

from tests.stages.web.browser import CHROMIUM, WIDTHS, measured

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")


def test_nothing_runs_off_the_edge_without_a_handle(pages: list[Path], tmp_path: Path) -> None:
    found = measured(pages, tmp_path)
    assert [(one["page"], one["width"]) for one in found] == [(page.name, w) for page in pages for w in WIDTHS]
    assert {f"{one['page']} at {one['width']}": one["beyond"] for one in found if one["beyond"]} == {}
    phone = {one["page"]: one["handles"] for one in found if one["width"] == min(WIDTHS)}
    assert phone["report.html"] and phone["compare.html"], "tables and drawings are wider than a phone"
    assert not phone["passage.html"] and not phone["passages.html"], "a passage has no columns on a phone"


def test_what_runs_off_is_found(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><p style='width: 800px'>wide</p><div style='overflow: hidden'><pre>" + "x" * 300)
    wide, narrow = measured([page], tmp_path)
    assert any("hides" in one for one in wide["beyond"])
    assert any(one.startswith("p.") for one in narrow["beyond"]) and "page 8" in "".join(narrow["beyond"])
