"""Tables of reports: what stands in which place."""

import pytest

from stages.pages.headline import headline
from stages.pages.tables import bucket_table, results_table, seeds_table
from stages.reports.tables import Table, change
from tests.stages.pages.made import source


def row(name: str, perplexity: float) -> dict:
    return {
        "row": name,
        "perplexity": perplexity,
        "bits_per_character": 1.5,
        "word_perplexity": None,
        "tokens_per_second": 1234.5,
    }


def memory(source: str, **settings: object) -> dict:
    return {"sources": [source], "reader": "interpolate", "tune_split": "valid", **settings}


REPORT = {
    "split": "test",
    "tokens": 4321,
    "rows": [row("plain", 80.0), row("knn-lm", 72.0)],
    "memories": [
        memory("external", k=1024, temperature=12.5, **{"lambda": 0.25}, tuned=["lambda"])
    ],
    "outside_repeated_paragraphs": {
        "repeated_share": 0.2,
        "rows": [{"row": "plain", "perplexity": 100.0}, {"row": "knn-lm", "perplexity": 95.0}],
    },
    "curves": [
        {
            "row": "knn-lm",
            "over": "k",
            "points": [{"k": 1, "temperature": 3.0, "lambda": 0.1, "perplexity": 79.0}],
        }
    ],
    "retrieval_accuracy": {"1": 0.25, "8": 0.5},
}


def cache_point(size: int, theta: float, perplexity: float | None) -> dict:
    return {"size": size, "theta": theta, "lambda": 0.1, "perplexity": perplexity}


CACHE = {
    "split": "test",
    "tokens": 4321,
    "rows": [row("plain", 99.3), row("neural-cache", 68.9), row("unigram-cache", 85.0)],
    "memories": [
        memory("long", size=2000, theta=0.3, **{"lambda": 0.1}, tuned=["size", "theta", "lambda"]),
        {**memory("local", theta=1.5, alpha=-2.0, tuned=["alpha"]), "reader": "joint"},
    ],
    "curves": [
        {
            "row": "neural-cache",
            "over": "size",
            "points": [cache_point(100, 0.4, 81.6), cache_point(2000, 0.3, 68.9)],
        },
        {
            "row": "unigram-cache",
            "over": "size",
            "points": [cache_point(100, 0.0, 90.0), cache_point(2000, 0.0, None)],
        },
    ],
    "retrieval_accuracy": None,
}


BUCKETS = {
    "counted_in": "train",
    "buckets": [
        {"more_than": 10_000, "at_most": None, "tokens": 2500},
        {"more_than": 10, "at_most": 100, "tokens": 1500},
        {"more_than": 0, "at_most": 10, "tokens": 300},
        {"more_than": None, "at_most": 0, "tokens": 21},
    ],
    "rows": [
        {"row": "plain", "perplexity": [3.35, 30.46, 240.39, None]},
        {"row": "knn-lm", "perplexity": [3.14, 26.9, 196.03, 2.5e12]},
    ],
}


def results(report: dict) -> Table:
    made = source(report)
    return results_table([made], headline([made]))


def lines(report: dict, *names: str) -> list[list[str]]:
    """Cells of the columns with these headers."""
    table = results(report)
    places = [table.columns.index(name) for name in names]
    return [[line[place] for place in places] for line in table.lines]


def test_every_row_is_compared_with_the_first() -> None:
    assert results(REPORT).columns == [
        "Memory",
        "perplexity",
        "change",
        "bits/char",
        "new text",
        "change, new text",
    ]
    assert results(REPORT).lines == [
        ["plain", "80.00", "", "1.5000", "100.00", ""],
        ["knn-lm best", "72.00", "-10.0%", "1.5000", "95.00", "-5.0%"],
    ]


def test_counting_stands_in_the_row_of_what_it_read() -> None:
    counted = {
        "perplexity": 24.7,
        "perplexity_on_new_text": 31.5,
        "texts": [],
        "past": None,
        "weight": None,
    }
    rows = [row("plain", 80.0), {**row("knn-lm", 72.0), "control": {**counted, "tune_split": None}}]
    found = lines({**REPORT, "rows": rows}, "counting", "counting, new text")
    assert found == [["", ""], ["24.70", "31.50"]]
    assert "counting" not in results(REPORT).columns


def test_an_interval_stands_behind_every_change_that_has_one() -> None:
    drawn = {"row": "knn-lm", "interval": [-0.12, -0.081], "on_new_text": [-0.07, 0.002]}
    table = results(
        {**REPORT, "change_intervals": {"units": 57, "unit": "document", **DRAWN, "rows": [drawn]}}
    )
    cells = [row.cells for row in table.rows]
    assert [cell.plain for cell in (cells[0][2], cells[1][2], cells[1][5])] == [
        *("", "-10.0% [-12.0, -8.1]", "-5.0% [-7.0, +0.2]"),
    ]
    assert cells[1][2].value == pytest.approx(-0.1)
    assert change(-0.1, [-0.12, -0.0004]).plain == "-10.0% [-12.0, -0.04]"


DRAWN = {"samples": 10, "confidence": 0.95, "block_tokens": None}


@pytest.mark.parametrize(
    "outside",
    [
        None,
        {"repeated_share": 1.0, "rows": [{"row": "plain", "perplexity": None}]},
        {"repeated_share": 0.0, "rows": [{"row": "plain", "perplexity": 80.0}]},
    ],
    ids=["none", "all", "all of it is new"],
)
def test_without_new_text_there_is_no_column_for_it(outside: dict | None) -> None:
    report = {**REPORT, "outside_repeated_paragraphs": outside}
    assert results(report).columns == ["Memory", "perplexity", "change", "bits/char"]


def test_last_words_have_an_accuracy() -> None:
    rows = [
        {**row("plain", 4000.0), "accuracy": 0.0},
        {**row("neural-cache", 130.0), "accuracy": 0.125},
    ]
    report = {"score": "last-word", "tokens": 700, "words": 500, "rows": rows}
    assert lines(report, "perplexity", "accuracy") == [["4,000", "0.0%"], ["130.00", "12.5%"]]


def test_frequencies_stand_side_by_side_and_those_of_few_tokens_in_parentheses() -> None:
    table = bucket_table(source({**REPORT, "frequency_buckets": BUCKETS}))
    assert table.columns == ("Memory", "> 10,000", "11-100", "1-10", "0")
    assert table.lines == [
        ["tokens", "2,500", "1,500", "300", "21"],
        ["plain", "3.35", "30.46", "240.39", ""],
        ["knn-lm", "3.14", "26.90", "196.03", "(2.5e+12)"],
    ]
    assert "fewer than 100" in table.title
    fewer = {
        **BUCKETS,
        "counted_in": "split",
        "buckets": [*BUCKETS["buckets"][:-1], {**BUCKETS["buckets"][-1], "tokens": 2}],
    }
    table = bucket_table(source({**REPORT, "frequency_buckets": fewer}))
    assert [line[-1] for line in table.lines] == ["2", "-", "-"] and "fewer than 10" in table.title


@pytest.mark.parametrize(
    ("perplexity", "shown"), [(None, ""), (123_456.0, "123,456"), (2.5e30, "2.5e+30")]
)
def test_a_row_that_diverges_is_called_so(perplexity: float | None, shown: str) -> None:
    broken = {**row("trime", 0.0), "perplexity": perplexity, "diverged": True}
    found = lines(
        {**REPORT, "rows": [row("plain", 80.0), broken], "outside_repeated_paragraphs": None},
        "perplexity",
        "change",
    )
    assert found[1] == [shown, "diverges"]


@pytest.mark.parametrize(("text", "new"), [("tokens/1", "110.00"), ("tokens/2", "")])
def test_a_baseline_stands_above_and_is_compared_with(text: str, new: str) -> None:
    outside = {**REPORT["outside_repeated_paragraphs"], "texts": [{**TEXT, "corpus": "tokens/1"}]}
    theirs = {"texts": [{**TEXT, "corpus": text}], "rows": [{"row": "plain", "perplexity": 110.0}]}
    first = {**row("plain", 60.0), "memories": []}
    baseline = {"report": "report/7", "model": "model/7", "method": "lm", "row": first}
    report = {**REPORT, "outside_repeated_paragraphs": outside, "method": "trime"}
    report["baseline"] = baseline | {"outside_repeated_paragraphs": theirs}
    found = lines(
        {**report, "read": {"model": "model/9", "tokens": "tokens/1"}},
        "Memory",
        "perplexity",
        "change",
    )
    assert found == [
        ["plain (model/7) best", "60.00", ""],
        ["plain", "80.00", "+33.3%"],
        ["knn-lm", "72.00", "+20.0%"],
    ]
    table = results({**report, "read": {"model": "model/9", "tokens": "tokens/1"}})
    assert [line[table.columns.index("new text")] for line in table.lines] == [
        new,
        "100.00",
        "95.00",
    ]
    assert table.lines[2][table.columns.index("new text") + 1] == ("-13.6%" if new else "")


TEXT = {"split": "train", "read_by": ["model"], "repeated_share": 0.2}


def test_a_row_has_a_note_of_each_memory_that_it_was_read_with() -> None:
    """A reading on top of another is tuned by itself: its weight is not that of the reading alone."""
    datastore, cache = REPORT["memories"][0], memory("long", size=50, **{"lambda": 0.1})
    off = memory("long", size=50, theta=0.0, **{"lambda": 0.0}, tuned=["size", "lambda"])
    memories = {"both": [datastore, {**cache, "lambda": 0.02}], "cache": [cache], "off": [off]}
    rows = [
        row("plain", 80.0),
        *({**row(name, 70.0), "memories": of} for name, of in memories.items()),
    ]
    notes = [[note.plain for note in one.notes] for one in results({**REPORT, "rows": rows}).rows]
    assert notes == [
        [],
        [
            "external, interpolate, k 1,024, τ 12.5, λ 0.25 (λ tuned on valid)",
            "long, interpolate, cache size 50, λ 0.02",
        ],
        ["long, interpolate, cache size 50, λ 0.1"],
        ["long, interpolate, θ 0, λ 0 (λ tuned on valid)"],
    ]


def test_means_over_seeds_stand_in_a_group_each() -> None:
    def over_seeds(name: str, mean: float, n: int = 2) -> dict:
        spread = [mean - 1, mean + 1] if n > 1 else None
        figures = {"n": n, "mean": mean, "deviation": 1.0 if n > 1 else None, "interval": spread}
        moved = {"mean": -0.1, "interval": [-0.15, -0.05]} if name == "knn-lm" else None
        return {"row": name, "perplexity": figures, "change": moved, "counting": 24.7}

    group = {"method": "lm", "seeds": [0, 1], "reports": ["report/1", "report/2"]}
    groups = [{**group, "rows": [over_seeds("plain", 80.0), over_seeds("knn-lm", 72.0)]}]
    groups += [
        {**group, "seeds": [0], "reports": ["report/3"], "rows": [over_seeds("plain", 90.0, 1)]}
    ]
    table = seeds_table({"split": "test", "confidence": 0.95, "groups": groups}, ["A", "B"])
    assert table.lines == [
        ["A", *[""] * 4],
        ["plain", "80.00 ± 1.00", "1.00", "", "24.70"],
        ["knn-lm", "72.00 ± 1.00", "1.00", "-10.0% ± 5.0", "24.70"],
        ["B", *[""] * 4],
        ["plain", "90.00", "", "", "24.70"],
    ]
    assert [one.head and one.head.soft for one in table.groups] == [
        *("lm, seeds 0, 1: report/1, report/2", "lm, seeds 0: report/3"),
    ]
