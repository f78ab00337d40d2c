"""Titles are words, not hashes."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.pages.headline import headline, means_over_seeds, rankings, seed_tables
from stages.pages.lineage import find_reports, lineage_of
from stages.pages.source import read_sources, shared_remarks
from stages.pages.tables import page_title, short_title
from stages.reports.counting import AgainstCounting
from stages.reports.fields import SHORTER
from stages.reports.remarks.table import remark
from tests.snapshot import same_as
from tests.stages.pages import made


def unnamed(store: Store, kind: str, name: str) -> None:
    (store.root / "names" / kind / name).unlink()


def title(store: Store, *references: str) -> str:
    reports = find_reports(references, store)
    sources = read_sources(reports, lineage_of(reports), lambda report: [])
    return page_title(sources, headline(sources, means_over_seeds(seed_tables(reports))))


def another(store: Store, first: Artifact, name: str = "", **changes: object) -> Artifact:
    """A report on the same tokens."""
    read = {role: first.input(role) for role in ("tokens", "model", "index")}
    told = made.metrics(changes, {role: artifact.reference for role, artifact in read.items()})
    return made.made(store, "report", name, files={"metrics.json": json.dumps(told)}, **read)


DRAWN = {
    "confidence": 0.95,
    "samples": 9,
    "seed": 0,
    "unit": "document",
    "block_tokens": None,
    "units": 30,
}
BASELINE: dict[str, Any] = {
    "report": "report/7",
    "model": "model/7",
    "method": "lm",
    "row": made.row("plain", 80.0),
}
BASELINE |= {"outside_repeated_paragraphs": None}


def drawn(row: str, *interval: float) -> dict[str, object]:
    return {**DRAWN, "rows": [{"row": row, "interval": list(interval), "on_new_text": None}]}


def short(store: Store, reference: str) -> str:
    reports = find_reports([reference], store)
    sources = read_sources(reports, lineage_of(reports), lambda report: [])
    return short_title(sources, headline(sources, means_over_seeds(seed_tables(reports))))


def counted(control: float, new: float | None) -> list[dict[str, object]]:
    """Rows of which the second is held against counting."""
    one: dict[str, object] = {
        "perplexity": control,
        "perplexity_on_new_text": new,
        "texts": [],
        "past": None,
        "weight": None,
    }
    return [made.row("plain", 168.0), {**made.row("neural-cache", 113.57), "control": one}]


Titled = Iterator[tuple[str, str]]
"""Cases, and the title of each."""


class Titles:
    """Titles of reports that differ from one with something for every part."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.report = made.chain(store)
        self.outside = self.report.json("metrics.json")["outside_repeated_paragraphs"]

    def __iter__(self) -> Titled:
        yield from self.of_one_report()
        yield from self.beside_a_trigram()
        yield from self.beside_counting()
        yield from self.of_a_model_that_loses_to_counting()
        yield from self.of_text_read_before()
        yield from self.of_rows()
        yield from self.beside_a_baseline()
        yield from self.of_an_open_book()
        yield from self.of_seeds_and_of_text_without_a_name()

    def told(self, case: str, *others: Artifact, **changes: object) -> tuple[str, str]:
        """The title of other reports with one that has these changes."""
        name = case.replace(",", "").replace(" ", "-")
        changed = another(self.store, self.report, name, **changes)
        references = [report.reference for report in (*others, changed)]
        return case, title(self.store, *references)

    def short(self, case: str, **changes: object) -> tuple[str, str]:
        """The short title of a report that has these changes."""
        changed = another(self.store, self.report, "", **changes) if changes else self.report
        return f"short{case}", short(self.store, changed.reference)

    def of_one_report(self) -> Titled:
        yield "one report", title(self.store, self.report.reference)
        yield self.short("")
        nothing = {"outside_repeated_paragraphs": None}
        yield self.short(", worse than counting", rows=counted(50.0, None), **nothing)
        yield self.short(", not surely better than counting", rows=counted(114.0, None), **nothing)
        training = {"passes": 0.5, "still_falling": True}
        interval = drawn("neural-cache", -0.4, -0.21)
        yield self.told(
            "undertrained, with an interval", change_intervals=interval, training=training
        )

    def beside_a_trigram(self) -> Titled:
        for trigram, valid in ((130.0, None), (180.0, 80.0), (1000.0, 300.0), (1000.0, 160.0)):
            control = {"perplexity": trigram, "perplexity_on_new_text": trigram}
            case = f"trigram {trigram:g}, valid {valid}"
            yield self.told(case, trigram=control, valid_perplexity=valid)

    def beside_counting(self) -> Titled:
        (new,) = (row["perplexity"] for row in self.outside["rows"] if row["row"] == "neural-cache")
        ties = counted(114.0, None)
        unsure = "not surely better than counting"
        yield self.told(unsure, rows=ties, outside_repeated_paragraphs=None)
        yield self.told(f"{unsure} on new text", rows=counted(200.0, new + 1))
        yield self.told(f"several, {unsure}", self.report, rows=ties, split="test")
        yield self.told("better than counting on new text alone", rows=counted(100.0, new + 5))
        yield self.told("worse than counting on new text", rows=counted(120.0, new - 1))

    def of_a_model_that_loses_to_counting(self) -> Titled:
        plain, cached = counted(120.0, None)
        control: Any = cached["control"]
        plain = {**plain, "control": {**control, "perplexity": 120.0}}
        for case, edges in (("surely", [-0.08, -0.02]), ("perhaps", [-0.12, 0.01])):
            rows = [plain, {**cached, "control": {**control, "interval": edges}}]
            changes = {"rows": rows, "outside_repeated_paragraphs": None}
            yield self.told(f"plain loses to counting, memory {case} not", **changes)
        yield self.short(", perhaps better than counting", **changes)

    def of_text_read_before(self) -> Titled:
        hardly = {**self.outside, "repeated_share": 0.01}
        yield self.told("hardly any text read before", outside_repeated_paragraphs=hardly)
        unknown = [{**row, "perplexity": None} for row in self.outside["rows"]]
        read = {**self.outside, "repeated_share": 1.0, "tokens": 0, "rows": unknown}
        yield self.told("all text read before", outside_repeated_paragraphs=read)
        yield self.short(", all text read before", outside_repeated_paragraphs=read)

    def of_rows(self) -> Titled:
        above_lowest = {"a": None, "b": [-0.01, 0.02], "c": [0.1, 0.3]}
        intervals = [
            {"row": row, "interval": None, "on_new_text": None, "above_lowest": edges}
            for row, edges in above_lowest.items()
        ]
        perplexities = {"plain": 200.0, "a": 150.0, "b": 151.0, "c": 180.0}
        rows = [made.row(*row) for row in perplexities.items()]
        yield self.told("a tie", rows=rows, change_intervals={**DRAWN, "rows": intervals})
        knn = [made.row("plain", 100.0), made.row("knn-lm", 90.0)]
        interval = drawn("knn-lm", -0.2, -0.0004)
        yield self.told("several", self.report, rows=knn, change_intervals=interval)
        yield self.told("no gain", rows=[made.row("plain", 80.0), made.row("knn-lm", 90.0)])
        yield self.told("no figure", rows=[made.row("plain", None)])
        yield self.told("several of other splits", self.report, split="valid")

    def beside_a_baseline(self) -> Titled:
        plain = made.row("plain", 88.0)
        trime = made.row("trime", 90.0, [made.CACHE])
        below: dict[str, Any] = {"rows": [plain, trime], "baseline": BASELINE}
        above = drawn("trime", 0.1, 0.15)
        yield self.told("worse than a baseline", **below, change_intervals=above)
        yield self.told("without memory, worse than a baseline", rows=[plain], baseline=BASELINE)
        better = [made.row("plain", 79.0), trime]
        yield self.told("better than a baseline", rows=better, baseline=BASELINE)
        worse = another(self.store, self.report, "", **below)
        yield self.told("several, worse than a baseline", worse, rows=[plain], baseline=BASELINE)

    def of_an_open_book(self) -> Titled:
        """The shorter window is what a book is compared with, and no gain of its own."""
        room = made.row(SHORTER, 86.0)
        for case, perplexity in (("better", 85.0), ("worse", 87.0)):
            rows = [made.row("open book", perplexity), room]
            changes = {"rows": rows, "baseline": BASELINE | {"row": made.row("plain", 90.0)}}
            yield self.told(f"open book, {case} than its window", **changes)
            yield self.short(f", open book {case} than its window", **changes)

    def of_seeds_and_of_text_without_a_name(self) -> Titled:
        small = seeds_of(
            self.store, self.report, "small", [100.0, 102.0, 104.0], [90.0, 91.8, 93.6]
        )
        yield "seeds", title(self.store, *(report.reference for report in small))
        unnamed(self.store, "tokens", "corpus")
        yield "text without a name", title(self.store, self.report.reference)


def test_titles_say_what_came_out(store: Store) -> None:
    text = "".join(f"{case}: {said}\n" for case, said in Titles(store))
    assert same_as(
        Path(__file__).with_name("titles.txt"), text
    )  # MEMLM_UPDATE_SNAPSHOTS=1 pytest writes it again


def test_reports_without_names_are_told_apart_in_words(store: Store) -> None:
    report = made.chain(store)
    unnamed(store, "report", "first")
    others = [another(store, report, tokens=tokens) for tokens in (41, 42)]
    reports = find_reports([one.reference for one in (report, *others)], store)
    sources = read_sources(reports, lineage_of(reports), lambda report: [])
    assert [source.label for source in sources] == [
        f"lm, neural-cache{number}" for number in ("", " (2)", " (3)")
    ]


def seeds_of(
    store: Store, first: Artifact, name: str, plain: Sequence[float], knn: Sequence[float]
) -> list[Artifact]:
    """Reports of models that differ by their seed, on the tokens of a report."""
    tokens, reports = first.input("tokens"), []
    for seed, values in enumerate(zip(plain, knn, strict=True)):
        model = made.made(
            store,
            "model",
            metrics={"parameters": 1234},
            seed=seed,
            files={"x": name},
            tokens=tokens,
        )
        rows = [
            made.row(row, value) for row, value in zip(("plain", "knn-lm"), values, strict=True)
        ]
        told = made.metrics({"rows": rows}, {"tokens": tokens.reference, "model": model.reference})
        reports.append(
            made.made(
                store, "report", name if seed == 0 else "", found=told, tokens=tokens, model=model
            )
        )
    return reports


def test_means_over_seeds_are_held_against_counting_on_new_text(store: Store) -> None:
    """The second run alone would lose, and so would both on all of the text."""
    first, reports = made.chain(store), []
    tokens, (_, counting) = first.input("tokens"), counted(70.0, 90.0)
    for seed, (value, new) in enumerate([(60.0, 80.0), (90.0, 91.0)]):
        model = made.made(store, "model", metrics={"parameters": 1234}, seed=seed, tokens=tokens)
        rows = [
            made.row("plain", 100.0),
            {**made.row("knn-lm", value), "control": counting["control"]},
        ]
        outside = {
            "repeated_share": 0.25,
            "rows": [{"row": "knn-lm", "perplexity": new}],
            "texts": [],
        }
        read = {"tokens": tokens.reference, "model": model.reference}
        told = made.metrics({"rows": rows, "outside_repeated_paragraphs": outside}, read)
        reports.append(made.made(store, "report", found=told, tokens=tokens, model=model))
    (table,) = seeds = seed_tables(reports)
    pair = AgainstCounting(**table["groups"][0]["rows"][1]["against_counting"])
    assert (pair.perplexity, pair.counting, pair.on_new_text) == (85.5, 90.0, True)
    found = headline(
        read_sources(reports, lineage_of(reports), lambda report: []), means_over_seeds(seeds)
    )
    assert [row.against_counting for row in found if row.name == "knn-lm"] == [pair] * 2


def test_the_luckiest_seed_is_not_the_lowest_report(store: Store) -> None:
    first = made.chain(store)
    small = seeds_of(store, first, "small", [100.0, 102.0], [80.0, 100.0])
    large = seeds_of(store, first, "large", [99.0, 99.0], [88.0, 89.0])
    reports = find_reports([one.reference for one in (*small, *large)], store)
    seeds = seed_tables(reports)
    sources = read_sources(reports, lineage_of(reports), lambda report: [])
    rows = headline(sources, means_over_seeds(seeds))
    (ranking,) = rankings(rows)
    assert [(row.source.label, row.typical) for row in ranking.rows] == [
        ("large", 88.5),
        ("small", 90.0),
    ]
    assert [row.values["perplexity"] for row in rows if row.best] == [88.0, 89.0]


def test_a_remark_of_several_reports_is_made_once(store: Store) -> None:
    first = made.chain(store)
    others = [
        another(store, first, "b"),
        another(store, first, "c", outside_repeated_paragraphs=None),
    ]
    reports = find_reports([one.reference for one in (first, *others)], store)
    more = {first.reference: [remark("plan", {"line": "x 0.9"})]}
    sources = read_sources(
        reports, lineage_of(reports), lambda report: more.get(report.reference, [])
    )
    labels = {remark.code: of for of, remark in shared_remarks(sources)}
    assert (labels["compared-with"], labels["repeated-text"], labels["plan"]) == (
        [],
        ["first", "b"],
        ["first"],
    )
