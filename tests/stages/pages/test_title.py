"""Titles are words, not hashes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.numbers import number
from stages.pages.headline import headline, means_over_seeds, rankings, seed_tables
from stages.pages.lineage import find_reports, lineage_of
from stages.pages.source import read_sources, shared_remarks
from stages.pages.title import page_title, short_title
from stages.reports.remarks.table import remark
from tests.stages.pages import made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def unnamed(store: Store, kind: str, name: str) -> None:
    (store.root / "names" / kind / name).unlink()


GAIN = ", 32.4% below plain; on new text 30.8%"


def title(store: Store, *references: str) -> str:
    reports = find_reports(references, store)
    sources = read_sources(reports, lineage_of(reports), lambda report: [])
    return page_title(sources, headline(sources, means_over_seeds(seed_tables(reports))))


def another(store: Store, first: Artifact, name: str = "", **changes: object) -> Artifact:
    """A report on the same tokens."""
    read = {role: first.input(role) for role in ("tokens", "model", "index")}
    told = made.metrics(changes, {role: artifact.reference for role, artifact in read.items()})
    return made.made(store, "report", name, files={"metrics.json": json.dumps(told)}, **read)


def test_one_report_is_told_by_its_lowest_row(store: Store) -> None:
    report = made.chain(store)
    assert title(store, report.reference) == f"neural-cache: perplexity 113.57 on corpus test{GAIN}"
    unnamed(store, "tokens", "corpus")
    assert title(store, report.reference) == f"neural-cache: perplexity 113.57 on test{GAIN}"


def test_a_short_title_is_one_sentence_and_gains_nothing_where_counting_does_better(store: Store) -> None:
    def short(reference: str) -> str:
        reports = find_reports([reference], store)
        sources = read_sources(reports, lineage_of(reports), lambda report: [])
        return short_title(sources, headline(sources, means_over_seeds(seed_tables(reports))))

    report = made.chain(store)
    assert short(report.reference) == "neural-cache is best on corpus test, 32.4% below plain"
    control = {"perplexity": 50.0, "perplexity_on_new_text": None, "texts": [], "past": None, "weight": None}
    rows = [made.row("plain", 168.0), {**made.row("neural-cache", 113.57), "control": control}]
    counted = another(store, report, rows=rows, outside_repeated_paragraphs=None)
    assert short(counted.reference) == "No memory beats counting on corpus test"


def test_a_gain_has_its_interval_and_says_that_the_model_was_undertrained(store: Store) -> None:
    report = made.chain(store)
    drawn = {"confidence": 0.95, "samples": 9, "seed": 0, "unit": "document", "block_tokens": None, "units": 30}
    intervals = {**drawn, "rows": [{"row": "neural-cache", "interval": [-0.4, -0.21], "on_new_text": None}]}
    training = {"passes": 0.5, "still_falling": True}
    told = another(store, report, change_intervals=intervals, training=training)
    said = "perplexity 113.57 on corpus test, 32.4% [21.0%, 40.0%] below plain; on new text 30.8% (undertrained)"
    assert title(store, told.reference) == f"neural-cache: {said}"
    assert title(store, report.reference, told.reference).endswith(" (undertrained)") is False


def test_a_row_that_ties_with_the_lowest_stands_beside_it(store: Store) -> None:
    names = {"plain": 200.0, "a": 150.0, "b": 151.0, "c": 180.0}
    drawn = {"confidence": 0.95, "samples": 9, "seed": 0, "unit": "document", "block_tokens": None, "units": 30}
    above = {"a": None, "b": [-0.01, 0.02], "c": [0.1, 0.3]}
    told = [{"row": row, "interval": None, "on_new_text": None, "above_lowest": edges} for row, edges in above.items()]
    rows = [made.row(*row) for row in names.items()]
    report = made.chain(store, {"rows": rows, "change_intervals": {**drawn, "rows": told}})
    assert title(store, report.reference).endswith(
        "a: perplexity 150.00 on corpus test, 25.0% below plain; b, 151.00, ties"
    )
    sources = read_sources([report], lineage_of([report]), lambda report: [])
    assert [row.ties for row in headline(sources)] == [False, False, True, False]


@pytest.mark.parametrize(
    ("trigram", "valid", "said"),
    [
        (130.0, None, " (plain no better than a trigram, 130 on new text)"),
        (180.0, None, " (plain hardly better than a trigram, 180 on new text)"),
        (180.0, 80.0, " (plain hardly better than a trigram, 180 on new text)"),
        (1000.0, 300.0, " (valid is harder)"),
        (1000.0, 160.0, ""),
    ],
)
def test_what_makes_little_of_a_gain_stands_beside_it(
    store: Store, trigram: float, valid: float | None, said: str
) -> None:
    counted = {"perplexity": trigram, "perplexity_on_new_text": trigram}
    told = another(store, made.chain(store), trigram=counted, valid_perplexity=valid)
    assert title(store, told.reference) == f"neural-cache: perplexity 113.57 on corpus test{GAIN}{said}"


def test_what_loses_to_counting_in_what_it_reads_says_so_before_its_gain(store: Store) -> None:
    def told(control: float, new: float) -> str:
        counted = {"perplexity": control, "perplexity_on_new_text": new, "texts": [], "past": None, "weight": None}
        rows = [made.row("plain", 168.0), {**made.row("neural-cache", 113.57), "control": counted}]
        return title(store, another(store, made.chain(store), f"n{control:g}-{new:g}", rows=rows).reference)

    ours = made.chain(store).json("metrics.json")["outside_repeated_paragraphs"]
    (new,) = (row["perplexity"] for row in ours["rows"] if row["row"] == "neural-cache")
    start = "neural-cache: perplexity 113.57 on corpus test"
    assert told(120.0, new + 1).startswith(f"{start}, 32.4% below")
    assert told(100.0, new + 1).startswith(f"{start}, 32.4% below"), "counting knows the text that was read by heart"
    worse = f"{start}, worse than a trigram of what it reads on new text ({number(new - 1)}), 32.4% below"
    assert told(120.0, new - 1).startswith(worse)


def test_of_several_reports_the_gain_of_the_lowest_is_told_with_its_interval(store: Store) -> None:
    drawn = {"confidence": 0.95, "samples": 9, "seed": 0, "unit": "document", "block_tokens": None, "units": 30}
    intervals = {**drawn, "rows": [{"row": "knn-lm", "interval": [-0.2, -0.0004], "on_new_text": None}]}
    report = made.chain(store)
    rows = [made.row("plain", 100.0), made.row("knn-lm", 90.0)]
    best = another(store, report, "best", rows=rows, change_intervals=intervals)
    said = "2 reports on corpus test: lowest perplexity 90.00, best (knn-lm), 10.0% [0.04%, 20.0%] below plain"
    assert title(store, report.reference, best.reference) == said
    assert title(store, best.reference, report.reference) == said


@pytest.mark.parametrize(("share", "said"), [(0.29, True), (0.01, False)])
def test_a_gain_on_text_that_was_read_before_is_told_without_it(store: Store, share: float, said: bool) -> None:
    report = made.chain(store)
    outside = dict(report.json("metrics.json")["outside_repeated_paragraphs"], repeated_share=share)
    named = another(store, report, "repeated", outside_repeated_paragraphs=outside)
    assert ("; on new text " in title(store, named.reference)) == said


def test_a_row_that_is_no_better_is_not_praised(store: Store) -> None:
    report = made.chain(store, {"rows": [made.row("plain", 80.0), made.row("knn-lm", 90.0)]})
    assert title(store, report.reference) == "plain: perplexity 80.00 on corpus test"
    nothing = another(store, report, rows=[made.row("plain", None)])
    assert title(store, nothing.reference) == "Report on corpus test"


BASELINE = {"report": "report/7", "model": "model/7", "method": "lm", "row": made.row("plain", 80.0)}
BASELINE |= {"outside_repeated_paragraphs": None}


def test_what_is_worse_than_its_baseline_is_said_to_be_by_the_row_that_reads_a_memory(store: Store) -> None:
    rows = [made.row("plain", 88.0), made.row("trime", 90.0, [made.CACHE])]
    drawn = {"confidence": 0.95, "samples": 9, "seed": 0, "unit": "document", "block_tokens": None, "units": 30}
    intervals = {**drawn, "rows": [{"row": "trime", "interval": [0.1, 0.15], "on_new_text": None}]}
    report = made.chain(store, {"rows": rows, "change_intervals": intervals, "baseline": BASELINE})
    said = "trime: perplexity 90.00 on corpus test, 12.5% [10.0%, 15.0%] above plain (model/7)"
    assert title(store, report.reference) == said
    alone = another(store, report, "alone", rows=rows[:1], baseline=BASELINE)
    assert title(store, alone.reference) == ("plain: perplexity 88.00 on corpus test, 10.0% above plain (model/7)")
    assert title(store, report.reference, alone.reference) == (
        "2 reports on corpus test: lowest perplexity 88.00, first (plain); a baseline, plain (model/7), is lower: 80.00"
    )
    better = another(store, report, "better", rows=[made.row("plain", 79.0), *rows[1:]], baseline=BASELINE)
    assert title(store, better.reference) == "plain: perplexity 79.00 on corpus test, 1.2% below plain (model/7)"


def test_reports_without_names_are_told_apart_in_words(store: Store) -> None:
    report = made.chain(store)
    unnamed(store, "report", "first")
    others = [another(store, report, tokens=tokens) for tokens in (41, 42)]
    both = [one.reference for one in (report, *others)]
    reports = find_reports(both, store)
    sources = read_sources(reports, lineage_of(reports), lambda report: [])
    assert [source.label for source in sources] == [
        *("lm, neural-cache", "lm, neural-cache (2)", "lm, neural-cache (3)"),
    ]
    lowest = another(store, report, "best", rows=[made.row("plain", 9.5)])
    told = title(store, *both, lowest.reference)
    assert told == "4 reports on corpus test: lowest perplexity 9.50, best (plain)"
    elsewhere = another(store, report, "valid", split="valid")
    assert title(store, report.reference, elsewhere.reference) == "2 reports on corpus test, corpus valid"


def seeds_of(store: Store, first: Artifact, name: str, plain: Sequence[float], knn: Sequence[float]) -> list[Artifact]:
    """Reports of models that differ by their seed, on the tokens of a report."""
    tokens, reports = first.input("tokens"), []
    for seed, values in enumerate(zip(plain, knn, strict=True)):
        model = made.made(store, "model", metrics={"parameters": 1234}, seed=seed, files={"x": name}, tokens=tokens)
        rows = [made.row(row, value) for row, value in zip(("plain", "knn-lm"), values, strict=True)]
        told = made.metrics({"rows": rows}, {"tokens": tokens.reference, "model": model.reference})
        reports.append(made.made(store, "report", name if seed == 0 else "", found=told, tokens=tokens, model=model))
    return reports


def test_seeds_are_no_rivals_their_mean_is_told(store: Store) -> None:
    first = made.chain(store)
    small = seeds_of(store, first, "small", [100.0, 102.0, 104.0], [90.0, 91.8, 93.6])
    told = title(store, *(one.reference for one in small))
    assert told == (
        "knn-lm: perplexity 91.80 (mean of 3 seeds, sd 1.80) on corpus test, 10.0% [10.0%, 10.0%] below plain"
    )


def test_the_luckiest_seed_is_not_the_lowest_report(store: Store) -> None:
    first = made.chain(store)
    small = seeds_of(store, first, "small", [100.0, 102.0], [80.0, 100.0])
    large = seeds_of(store, first, "large", [99.0, 99.0], [88.0, 89.0])
    reports = find_reports([one.reference for one in (*small, *large)], store)
    seeds = seed_tables(reports)
    sources = read_sources(reports, lineage_of(reports), lambda report: [])
    rows = headline(sources, means_over_seeds(seeds))
    told = page_title(sources, rows)
    assert told == "4 reports on corpus test: lowest mean perplexity 88.50 (mean of 2 seeds, sd 0.71), large (knn-lm)"
    better = seeds_of(store, first, "better", [99.0, 99.0], [70.0, 70.0])
    two = [one.reference for one in (*better, *small)]
    assert title(store, *two).endswith(
        "70.00 (mean of 2 seeds, sd 0.00), better (knn-lm), 29.3% [29.3%, 29.3%] below plain"
    )
    (ranking,) = rankings(rows)
    assert [(row.source.label, row.typical) for row in ranking.rows] == [("large", 88.5), ("small", 90.0)]
    assert [row.values["perplexity"] for row in rows if row.best] == [88.0, 89.0]


def test_a_remark_of_several_reports_is_made_once(store: Store) -> None:
    first = made.chain(store)
    others = [another(store, first, "b"), another(store, first, "c", outside_repeated_paragraphs=None)]
    reports = find_reports([one.reference for one in (first, *others)], store)
    more = {first.reference: [remark("plan", {"line": "x 0.9"})]}
    sources = read_sources(reports, lineage_of(reports), lambda report: more.get(report.reference, []))
    labels = {remark.code: of for of, remark in shared_remarks(sources)}
    assert (labels["compared-with"], labels["repeated-text"], labels["plan"]) == ([], ["first", "b"], ["first"])
