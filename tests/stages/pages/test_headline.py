"""Rows of several reports in one table."""

import csv
import io
import json
from pathlib import Path

import pytest

from stages.artifacts.store import Store
from stages.pages.headline import ReportRow, headline, headline_csv, measures_shown, rankings, shown
from stages.pages.lineage import find_reports, lineage_of
from stages.pages.source import read_sources
from tests.stages.pages import made


def rows_of(tmp_path: Path, changes: dict[str, object]) -> list[ReportRow]:
    reports = find_reports(
        [made.chain(Store(tmp_path / "store"), changes).reference], Store(tmp_path / "store")
    )
    return headline(read_sources(reports, lineage_of(reports), lambda report: []))


def test_change_is_against_the_first_row_and_the_lowest_is_best(tmp_path: Path) -> None:
    told = [
        made.row("plain", 200.0),
        made.row("a", 150.0),
        made.row("b", 250.0),
        made.row("c", None),
    ]
    rows = rows_of(tmp_path, {"rows": told})
    assert [row.change for row in rows] == [None, pytest.approx(-0.25), pytest.approx(0.25), None]
    assert [row.best for row in rows] == [False, True, False, False]


def test_a_row_alone_is_not_the_best(tmp_path: Path) -> None:
    assert [row.best for row in rows_of(tmp_path, {"rows": [made.row("plain", 200.0)]})] == [False]


def test_a_change_has_its_interval(tmp_path: Path) -> None:
    told = [made.row("plain", 200.0), made.row("a", 150.0), made.row("b", 150.0)]
    drawn = {
        "samples": 9,
        "confidence": 0.95,
        "unit": "document",
        "block_tokens": None,
        "units": 20,
    }
    rows = [{"row": "a", "interval": [-0.3, -0.2], "on_new_text": None}]
    found = rows_of(tmp_path, {"rows": told, "change_intervals": {**drawn, "rows": rows}})
    assert [row.interval for row in found] == [None, [-0.3, -0.2], None]
    lines = list(csv.DictReader(io.StringIO(headline_csv(found))))
    assert [(line["change_low"], line["change_high"]) for line in lines] == [
        ("", ""),
        ("-0.3", "-0.2"),
        ("", ""),
    ]


def test_reports_on_the_same_text_are_ranked_by_their_lowest_row(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = made.chain(store, {"rows": [made.row("plain", 200.0), made.row("a", 150.0)]})
    tokens, model = first.input("tokens"), first.input("model")

    def other(name: str, **changes: object) -> str:
        told = made.metrics(changes, {"tokens": tokens.reference})
        files = {"metrics.json": json.dumps(told)}
        return made.made(store, "report", name, files=files, tokens=tokens, model=model).reference

    references = [
        first.reference,
        other("low", rows=[made.row("plain", 100.0), made.row("b", 140.0)]),
        other("none", rows=[made.row("plain", None)]),
        other("elsewhere", split="valid"),
    ]
    reports = find_reports(references, store)
    (ranking,) = rankings(headline(read_sources(reports, lineage_of(reports), lambda report: [])))
    assert ranking.scored == "corpus test"
    assert [(row.source.label, row.name) for row in ranking.rows] == [
        ("low", "plain"),
        ("first", "a"),
    ]


def test_settings_are_told_as_papers_write_them_with_where_they_were_tuned(tmp_path: Path) -> None:
    (reading,) = rows_of(tmp_path, {"tokens": 501})[1].notes
    assert reading.head == "long"
    assert reading.text.replace("\N{NO-BREAK SPACE}", " ") == (
        "interpolate, dot, hidden, cache size 500, θ 0.3, λ 0.125"
    )
    assert reading.soft == "θ, λ tuned on valid"


def test_of_a_cache_larger_than_what_was_scored_it_is_told_what_it_comes_to(tmp_path: Path) -> None:
    for tokens, told in (
        (500, "cache size 500, all 500 of the split, θ 0.3"),
        (501, "cache size 500, θ 0.3"),
    ):
        (reading,) = rows_of(tmp_path / str(tokens), {"tokens": tokens})[1].notes
        assert told in reading.text.replace("\N{NO-BREAK SPACE}", " ")


def test_of_what_is_switched_off_the_weight_alone_was_tuned(tmp_path: Path) -> None:
    off = {**made.CACHE, "theta": None, "lambda": 0.0, "tuned": ["size", "theta", "lambda"]}
    rows = [made.row("plain", 80.0), made.row("neural-cache", 80.0, [off])]
    (reading,) = rows_of(tmp_path, {"rows": rows})[1].notes
    assert reading.text.replace("\N{NO-BREAK SPACE}", " ") == "interpolate, dot, hidden, λ 0"
    assert reading.soft == "λ tuned on valid"


def test_measures_that_no_row_has_are_left_out(tmp_path: Path) -> None:
    assert measures_shown(rows_of(tmp_path, {"outside_repeated_paragraphs": None})) == [
        "perplexity",
        "bits_per_character",
    ]
    nothing_repeated = {"repeated_share": 0.0, "rows": [{"row": "plain", "perplexity": 9.0}]}
    rows = rows_of(tmp_path / "new", {"outside_repeated_paragraphs": nothing_repeated})
    assert "perplexity_on_new_text" not in measures_shown(rows)
    last = {"rows": [made.row("plain", 9.0) | {"accuracy": 0.25, "bits_per_character": None}]}
    assert "accuracy" in measures_shown(rows_of(tmp_path / "last", last))


def test_a_baseline_stands_above_and_every_change_is_against_it(tmp_path: Path) -> None:
    theirs = {"texts": [], "rows": [{"row": "plain", "perplexity": 120.0}]}
    baseline = {
        "report": "report/7",
        "model": "model/7",
        "method": "lm",
        "row": made.row("plain", 100.0),
    }
    told = [made.row("plain", 200.0), made.row("neural-cache", 90.0)]
    rows = rows_of(
        tmp_path, {"rows": told, "baseline": baseline | {"outside_repeated_paragraphs": theirs}}
    )
    assert [row.name for row in rows] == [
        "plain (model/7)",
        "plain",
        "neural-cache",
    ]
    assert [row.change for row in rows] == [None, pytest.approx(1.0), pytest.approx(-0.1)]
    assert [row.change_on_new_text for row in rows] == [
        None,
        pytest.approx(174.25 / 120 - 1),
        pytest.approx(0.5 / 120),
    ]
    other = baseline | {
        "outside_repeated_paragraphs": theirs
        | {"texts": [{"corpus": "tokens/9", "split": "train"}]}
    }
    rows = rows_of(tmp_path / "other", {"rows": told, "baseline": other})
    assert [row.change_on_new_text for row in rows] == [None, None, None]
    assert rankings(rows) == []


def test_word_perplexity_is_shown_where_tokenizers_differ(tmp_path: Path) -> None:
    reports = [
        {"rows": [made.row("plain", 200.0)], "read": {"model": "model/1", "tokens": tokens}}
        for tokens in ("tokens/1", "tokens/2")
    ]
    rows = [
        row
        for number, report in enumerate(reports)
        for row in rows_of(tmp_path / str(number), report)
    ]
    assert "word_perplexity" in measures_shown(rows)
    assert "word_perplexity" not in measures_shown(rows[:1])


def test_a_word_perplexity_that_means_nothing_is_not_shown(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {"rows": [made.row("plain", 200.0) | {"word_perplexity": 2.9e210}]})
    assert shown(rows[0], "word_perplexity") is None
    assert "word_perplexity" not in measures_shown(rows)
