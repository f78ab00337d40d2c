"""The page of a report: whole, safe, and true to its numbers."""

import base64
import csv
import io
import json
import re
import subprocess
import sys
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.pages.lineage import MISSING, OTHER_BYTES, WITH_MEMORY, facts, find_reports, lineage_of
from stages.pages.page import Page, build_page
from stages.pages.source import read_sources
from stages.reports.remarks.table import Severity, remark
from stages.retrieval.reading import MEANS
from tests.conftest import EMPTY
from tests.stages.artifacts.toy import restate
from tests.stages.pages import made

pytestmark = pytest.mark.usefixtures("drawn")

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of one report with something for every part."""
    store = Store(tmp_path_factory.mktemp("page"))
    return page_of(store, made.chain(store).reference)


def page_of(store: Store, *references: str) -> Page:
    return build_page(
        find_reports(references, store), lambda members: "\n".join(members), lambda report: []
    )


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are empty where a test reads the words of a page alone."""
    monkeypatch.setattr("stages.charts.figure.draw", lambda chart: EMPTY)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_page_is_whole_and_every_link_leads_somewhere(page: Page) -> None:
    outline = made.Outline(page.html)
    identifiers = outline.values("id")
    assert len(identifiers) == len(set(identifiers))
    for target in outline.values("href"):
        assert target.startswith("data:") or target[1:] in identifiers
    headings = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(headings))
    assert len(list(outline.all("caption"))) == len(list(outline.all("table"))) == 3
    for drawing in outline.all("svg"):
        if drawing.get("class") != "drawing":
            continue  # what the library drew lies inside of an element with the words
        assert drawing["role"] == "img"
        assert set((drawing["aria-labelledby"] or "").split()) <= set(identifiers)


def test_nothing_is_fetched_and_nothing_runs(page: Page) -> None:
    outline = made.Outline(page.html)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in outline.elements}
    assert not re.search(r"@import|url\((?!#)", page.html)
    assert not outline.values("src")
    assert not any(re.match("(https?:)?//", target) for target in outline.values("href"))


def test_every_part_has_its_section(page: Page) -> None:
    sections = [attributes.get("id") for attributes in made.Outline(page.html).all("section")]
    assert sections == [
        "results",
        "memory",
        "tuning",
        "frequency",
        "gate",
        "training",
        "artifacts",
        "commands",
    ]
    assert [figure.name for figure in page.figures] == [
        "perplexity-by-row",
        *(
            "perplexity-by-size",
            "retrieval-accuracy",
            "heat-map",
            "perplexity-by-lambda",
            "loss-by-frequency",
        ),
        *(
            "gate-histogram",
            "gate-accuracy",
            "gate-passage",
            "training-loss",
            "learning-rate",
            "lineage",
        ),
    ]


def test_a_page_loads_nothing_that_draws_or_computes_beside_it() -> None:
    program = (
        "import sys, stages.pages.page; sys.exit(bool({'matplotlib', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_numbers_are_those_of_the_report(page: Page) -> None:
    told = {float(data["value"] or "nan") for data in made.Outline(page.html).all("data")}
    expected = made.metrics({}, {})
    for row in expected["rows"]:
        assert {row["perplexity"], row["bits_per_character"]} <= told
    assert {174.25, 120.5, 20.0, 400.0, 19.0, 100.0} <= told
    results = table(page.tables["results"])
    assert [float(line["perplexity"]) for line in results] == [
        row["perplexity"] for row in expected["rows"]
    ]
    assert float(results[1]["change"]) == 113.5703 / 167.9187154621268 - 1
    assert "θ\N{NO-BREAK SPACE}0.3" in page.html and "θ, λ tuned" in page.html


def test_every_figure_comes_as_a_drawing_and_with_its_numbers(page: Page) -> None:
    files = {
        a["download"]: a["href"] or "" for a in made.Outline(page.html).all("a") if "download" in a
    }
    for figure in page.figures:
        drawing = base64.b64decode(files[f"{figure.name}.svg"].partition(",")[2]).decode()
        assert drawing == figure.svg
        assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
        assert (
            base64.b64decode(files[f"{figure.name}.csv"].partition(",")[2]).decode() == figure.csv
        )
    by_name = {figure.name: table(figure.csv) for figure in page.figures}
    losses = [
        float(line["loss, nats"]) for line in by_name["training-loss"] if line["line"] == "train"
    ]
    assert losses == [5 / step for step in range(1, 61)]
    assert [line["perplexity"] for line in by_name["perplexity-by-size"]] == ["140.5", "113.5703"]
    assert {line["accuracy@K"] for line in by_name["retrieval-accuracy"]} == {"0.125", "0.5"}
    assert by_name["heat-map"][-1]["θ"] == "0.3" and by_name["heat-map"][-1]["0.9"] == "inf"
    assert len(by_name["gate-histogram"]) == 4


def test_what_comes_from_data_is_escaped(store: Store) -> None:
    memory = made.CACHE | {"tune_split": EVIL, "reader": EVIL}
    curve = {
        "row": EVIL,
        "over": EVIL,
        "points": [{EVIL: 1, "perplexity": 3.0}, {EVIL: 2, "perplexity": 2.0}],
    }
    changes = {
        **{"split": EVIL, "method": EVIL, "curves": [curve]},
        "rows": [made.row("plain", 10.0), made.row(EVIL, 5.0, [memory])],
    }
    page = page_of(store, made.chain(store, changes).reference)
    assert "<script" not in page.html
    assert "&lt;script&gt;" in page.html
    assert "script" not in {tag for tag, _ in made.Outline(page.html).elements}
    assert "<script" not in "".join(figure.svg for figure in page.figures)
    assert all(re.fullmatch("[a-z0-9-]+", figure.name) for figure in page.figures)


def test_what_is_gone_is_told_and_the_rest_is_shown(store: Store) -> None:
    report = made.chain(store)
    model = report.input("model")
    store.remove(model.reference)
    page = page_of(store, report.reference)
    assert f"{model.reference}</a> is {MISSING}" in page.html
    assert "training-loss" not in {figure.name for figure in page.figures}
    assert "167.9187154621268" in page.html
    lineage = next(figure for figure in page.figures if figure.name == "lineage")
    assert "model, gone" in lineage.svg and model.reference in lineage.svg


def make_again(artifact: Artifact) -> None:
    """Change an artifact as if it had been made again, with other bytes."""
    restate(
        artifact.path, lambda manifest: manifest["files"]["config.json"].update(blake2b="0" * 128)
    )


@pytest.mark.usefixtures("without_charts")
def test_artifacts_made_again_with_other_bytes_are_told(store: Store) -> None:
    report = made.chain(store)
    make_again(report.input("model"))
    assert OTHER_BYTES in page_of(store, report.reference).html


@pytest.mark.usefixtures("without_charts")
def test_other_bytes_are_told_where_another_report_has_read_them(store: Store) -> None:
    old = made.chain(store)
    tokens, model = (old.input(role) for role in ("tokens", "model"))
    make_again(model)
    told = made.metrics({"tokens": 41}, {"tokens": tokens.reference})
    read = {"tokens": tokens, "model": store.open(model.reference)}
    new = made.made(store, "report", files={"metrics.json": json.dumps(told)}, **read)
    assert OTHER_BYTES not in page_of(store, new.reference).html
    for order in ((new, old), (old, new)):
        assert OTHER_BYTES in page_of(store, *(report.reference for report in order)).html


@pytest.mark.usefixtures("without_charts")
def test_a_report_of_one_row_has_no_comparison(store: Store) -> None:
    nothing = dict.fromkeys(
        ("curves", "grid", "retrieval_accuracy", "gate", "outside_repeated_paragraphs")
    )
    alone = {"rows": [made.row("plain", None)], "frequency_buckets": None, **nothing, "curves": []}
    page = page_of(store, made.chain(store, alone).reference)
    assert [figure.name for figure in page.figures] == ["training-loss", "learning-rate", "lineage"]
    assert table(page.tables["results"])[0]["perplexity"] == ""
    made.Outline(page.html)


def test_the_same_store_gives_the_same_page(store: Store) -> None:
    report = made.chain(store)
    assert page_of(store, report.reference).html == page_of(store, report.reference).html


def test_figures_of_reports_with_like_names_are_told_apart(store: Store) -> None:
    report = made.chain(store)
    store.name(report, "a.b")
    (store.root / "names" / "report" / "first").unlink()
    tokens, model, index = (report.input(role) for role in ("tokens", "model", "index"))
    told = made.metrics({"tokens": 41}, {"tokens": tokens.reference})
    files = {"metrics.json": json.dumps(told)}
    other = made.made(store, "report", "a-b", files=files, tokens=tokens, model=model, index=index)
    page = page_of(store, report.reference, other.reference)
    names = [figure.name for figure in page.figures]
    assert {"heat-map-a-b", "heat-map-a-b--2"} <= set(names)
    assert len(names) == len(set(names))
    assert "a.b: neural-cache" in page.html


@pytest.mark.parametrize(
    ("method", "told"), [("lm", False), ("trime-long", True), ("elsewhere", False)]
)
def test_a_validation_perplexity_with_memory_is_told_from_a_plain_one(
    store: Store, method: str, told: bool
) -> None:
    found = {"parameters": 1234, "valid_perplexity": 49.04}
    tokens = made.chain(store).input("tokens")
    model = made.made(store, "model", metrics=found, method=method, tokens=tokens)
    assert "valid perplexity 49.04" in facts(model)
    assert facts(model).endswith(WITH_MEMORY) == told


def test_what_settings_say_of_comparing_is_explained(page: Page) -> None:
    said = "".join(made.Outline(page.html).text)
    assert all(f"{word}: {MEANS[word]}" in said for word in ("dot", "hidden"))
    assert "scaled-dot" not in said


@pytest.mark.usefixtures("without_charts")
def test_what_a_terminal_says_of_a_report_stands_on_the_page_and_what_is_severe_above_its_rows(
    store: Store,
) -> None:
    unknown = {
        "rate": 0.2,
        "rows": [{"row": "plain", "perplexity_without": 90.0, "share_of_gain": None}],
    }
    told = {
        **{"exclude": "self", "training": {"passes": 0.5, "still_falling": True}},
        **{"unknown_rate": 0.2, "unknown_tokens": unknown},
    }
    read = dict.fromkeys(("model", "tokens", "datastore"), "a/b")
    report = made.chain(store, {**told, "read": read | {"tokens": "tokens/none"}})
    reports, more = find_reports([report.reference], store), [remark("plan", {"line": "x 0.9"})]
    page = build_page(reports, lambda members: "", lambda report: more)
    said = "".join(made.Outline(page.html).text)
    (source,) = read_sources(reports, lineage_of(reports), lambda report: more)
    assert {"scored-datastore-text", "undertrained", "unknown-tokens", "plan"} <= {
        one.code for one in source.remarks
    }
    assert all(one.text in said for one in source.remarks)
    rows = said.index("Change is against the first row")
    assert all(
        (said.index(one.text) < rows) == (one.severity == Severity.SEVERE) for one in source.remarks
    )
