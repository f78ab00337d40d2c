"""Nothing of a page runs off the right edge of a laptop or a phone without a handle to draw it by."""

from pathlib import Path

import pytest

from stages.artifacts.store import Store
from stages.pages.lineage import find_reports
from stages.pages.page import build_page
from tests.stages.pages import made
from tests.stages.web.browser import CHROMIUM, WIDTHS, measured

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"
)


def test_nothing_runs_off_the_edge_without_a_handle(pages: list[Path], tmp_path: Path) -> None:
    found = measured(pages, tmp_path)
    assert [(one["page"], one["width"]) for one in found] == [
        (page.name, w) for page in pages for w in WIDTHS
    ]
    assert {
        f"{one['page']} at {one['width']}": one["beyond"] for one in found if one["beyond"]
    } == {}
    phone = {one["page"]: one["handles"] for one in found if one["width"] == min(WIDTHS)}
    assert (
        phone["report.html"] and phone["compare.html"]
    )  # tables and drawings are wider than a phone
    assert not [one["above"] for one in found if one["above"] and one["width"] == min(WIDTHS)], (
        "figures come first"
    )
    assert (
        not phone["passage.html"] and not phone["passages.html"]
    )  # a passage has no columns on a phone


def test_all_columns_of_the_results_are_seen_on_a_laptop(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    tuned = {
        "tuned": ["theta", "lambda", "size"],
        "tune_split": "valid",
        "theta": 0.0471,
        "lambda": 0.225,
    }
    cache = {
        "sources": ["long"],
        "reader": "interpolate",
        "similarity": "dot",
        "key": "hidden",
        "size": 10_000,
        **tuned,
    }
    rows = [made.row("plain", 51.01), made.row("knn-lm then neural-cache", 36.42, [cache])]
    drawn = {
        "confidence": 0.95,
        "samples": 9,
        "seed": 0,
        "unit": "document",
        "block_tokens": None,
        "units": 30,
    }
    edges = [
        {
            "row": "knn-lm then neural-cache",
            "interval": [-0.305, -0.268],
            "on_new_text": [-0.3, -0.26],
        }
    ]
    report = made.chain(store, {"rows": rows, "change_intervals": {**drawn, "rows": edges}})
    page = tmp_path / "report.html"
    page.write_text(
        build_page(find_reports([report.reference], store), lambda _: "memlm", lambda _: []).html,
        "utf-8",
    )
    wide, _ = measured([page], tmp_path)
    assert wide["handles"] == [] and "cache size tuned" in page.read_text("utf-8")


def test_what_runs_off_is_found(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><p style='width: 800px'>wide</p><div style='overflow: hidden'><pre>"
        + "x" * 300
    )
    wide, narrow = measured([page], tmp_path)
    assert any("hides" in one for one in wide["beyond"])
    assert any(one.startswith("p.") for one in narrow["beyond"]) and "page 8" in "".join(
        narrow["beyond"]
    )
