"""The tables that end train, evaluate and run."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from memlm_cli.groups_text import groups_text
from memlm_cli.report_tables import buckets_table, curves_table, report_table, show_report
from memlm_cli.result_tables import show_result, splits_table
from memlm_cli.tables import table
from stages.evaluation.figures.row_names import with_model_named


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
    "memories": [memory("external", k=1024, temperature=12.5, **{"lambda": 0.25}, tuned=["lambda"])],
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
        {"row": "neural-cache", "over": "size", "points": [cache_point(100, 0.4, 81.6), cache_point(2000, 0.3, 68.9)]},
        {"row": "unigram-cache", "over": "size", "points": [cache_point(100, 0.0, 90.0), cache_point(2000, 0.0, None)]},
    ],
    "retrieval_accuracy": None,
}


def test_what_counting_has_of_the_text_that_a_row_reads_stands_beside_its_change() -> None:
    counted = {"perplexity": 24.7, "perplexity_on_new_text": 31.5, "texts": [], "past": None, "weight": None}
    rows = [row("plain", 80.0), {**row("knn-lm", 72.0), "control": {**counted, "tune_split": None}}]
    columns, cells = report_table({**REPORT, "rows": rows})
    assert columns[1:4] == ["perplexity", "change", "counting"] and columns[-1] == "counting on new text"
    assert [(line[3], line[-1]) for line in cells] == [("", ""), ("24.7", "31.5")]
    assert "counting" not in report_table(REPORT)[0], "a report of format 2"


def test_means_over_seeds_stand_beside_counting_and_what_does_not_beat_it_is_said_first() -> None:
    def over_seeds(name: str, mean: float, counted: float | None) -> dict:
        figures = {"n": 2, "mean": mean, "deviation": 1.0, "interval": [mean - 1, mean + 1]}
        return {"row": name, "perplexity": figures, "change": None, "counting": counted}

    rows = [over_seeds("plain", 80.0, 95.0), over_seeds("knn-lm", 72.0, 24.7), over_seeds("old", 70.0, None)]
    group = {"method": "lm", "seeds": [0, 1], "reports": ["report/1", "report/2"], "rows": rows}
    found = {"split": "test", "confidence": 0.95, "unknown_rate": None, "groups": [group]}
    head, plain, knn, old, _, first, *_ = groups_text(found).splitlines()
    assert head.endswith("counting")
    assert [line.split()[-1] for line in (plain, knn)] == ["95.00", "24.70"] and old.split()[-1] == "71.00]"
    assert first.startswith("A: knn-lm does not beat a trigram")


def test_an_interval_stands_beside_every_change_that_has_one() -> None:
    drawn = {"row": "knn-lm", "interval": [-0.12, -0.081], "on_new_text": [-0.07, 0.002]}
    _, cells = report_table({**REPORT, "change_intervals": {"rows": [drawn]}})
    assert [line[2] for line in cells] == ["", "-10.0% [-12.0, -8.1]"]
    assert [line[-1] for line in cells] == ["", "-5.0% [-7.0, +0.2]"]
    _, cells = report_table({**REPORT, "change_intervals": {"rows": [{**drawn, "interval": [-0.12, -0.0004]}]}})
    assert cells[1][2] == "-10.0% [-12.0, -0.04]"


def test_a_cache_of_no_less_than_the_split_is_said_to_be_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown({**CACHE, "tokens": 1990}, capsys)
    assert any("size 2,000, all 1,990 of the split (tuned on valid)" in line for line in lines)
    assert any(line.startswith("2,000 (all)") for line in lines)
    assert not any("of the split" in line or "(all)" in line for line in shown({**CACHE, "tokens": 2001}, capsys))


def test_every_row_is_compared_with_the_first() -> None:
    columns, cells = report_table(REPORT)
    assert columns[:3] == ["", "perplexity", "change"]
    assert cells == [
        ["plain", "80", "", "1.5", "1,234", "100", ""],
        ["knn-lm", "72", "-10.0%", "1.5", "1,234", "95", "-5.0%"],
    ]


@pytest.mark.parametrize(
    "outside",
    [
        None,
        {"repeated_share": 1.0, "rows": [{"row": "plain", "perplexity": None}]},
        {"repeated_share": 0.0, "rows": [{"row": "plain", "perplexity": 80.0}]},
    ],
    ids=["none", "all", "all of it is new"],
)
def test_without_new_text_beside_repeated_paragraphs_there_is_no_column_for_it(outside: dict | None) -> None:
    columns, cells = report_table({**REPORT, "outside_repeated_paragraphs": outside})
    assert columns == ["", "perplexity", "change", "bits/char", "tokens/s"]
    assert len(cells[0]) == 5


def test_neighbours_are_shown_by_their_number() -> None:
    columns, cells = curves_table(REPORT, "k")
    assert columns == ["k", "perplexity knn-lm", "temperature", "lambda", "retrieval accuracy@k"]
    assert cells == [["1", "79", "3", "0.1", "25.0%"], ["8", "-", "-", "-", "50.0%"]]


def test_beside_the_accuracy_of_neighbours_stands_that_of_chance() -> None:
    columns, cells = curves_table({**REPORT, "retrieval_accuracy_by_chance": {"1": 0.01, "8": 0.08}}, "k")
    assert columns[-2:] == ["retrieval accuracy@k", "by chance"]
    assert [line[-2:] for line in cells] == [["25.0%", "1.0%"], ["50.0%", "8.0%"]]


def test_caches_are_shown_by_their_size_with_the_settings_of_the_first() -> None:
    columns, cells = curves_table(CACHE, "size")
    assert columns == ["size", "perplexity neural-cache", "theta", "lambda", "perplexity unigram-cache"]
    assert cells == [["100", "81.6", "0.4", "0.1", "90"], ["2,000", "68.9", "0.3", "0.1", ""]]


def test_a_curve_stands_in_the_table_of_what_it_runs_over_alone() -> None:
    assert curves_table(CACHE, "k") == (["k"], [])
    assert curves_table(REPORT, "size") == (["size"], [])


def test_last_words_have_an_accuracy() -> None:
    rows = [{**row("plain", 4000.0), "accuracy": 0.0, "word_perplexity": 5000.0}]
    rows += [{**row("neural-cache", 130.0), "accuracy": 0.125, "word_perplexity": 140.0}]
    columns, cells = report_table({"score": "last-word", "tokens": 700, "words": 500, "rows": rows})
    assert columns == ["", "perplexity", "change", "accuracy", "word perplexity", "tokens/s"]
    assert cells == [
        ["plain", "4,000", "", "0.0%", "5,000", "1,234"],
        ["neural-cache", "130", "-96.8%", "12.5%", "140", "1,234"],
    ]


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


def test_frequencies_stand_side_by_side() -> None:
    columns, cells = buckets_table(BUCKETS)
    assert columns == ["", "> 10,000", "11-100", "1-10", "0"]
    assert cells == [
        ["tokens", "2,500", "1,500", "300", "21"],
        ["plain", "3.35", "30.46", "240.4", ""],
        ["knn-lm", "3.14", "26.9", "196", "(2.5e+12)"],
    ]


def test_what_is_missing_or_of_few_tokens_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown({**REPORT, "frequency_buckets": BUCKETS}, capsys)
    assert "By neighbours read, test (-: not measured)" in lines
    by_chance = {"retrieval_accuracy_by_chance": {"1": 0.01, "8": 0.08}}
    title = "By neighbours read, test (-: not measured; by chance: of k rows drawn at random)"
    assert title in shown({**REPORT, **by_chance}, capsys)
    title = "Perplexity by how often a token stands in train (in parentheses: of fewer than 100 tokens, mostly luck)"
    assert title in lines
    fewer = {**BUCKETS, "buckets": [*BUCKETS["buckets"][:-1], {**BUCKETS["buckets"][-1], "tokens": 2}]}
    lines = shown({**REPORT, "frequency_buckets": fewer}, capsys)
    assert "Perplexity by how often a token stands in train (-: of fewer than 10)" in lines
    assert not any("2.5e+12" in line for line in lines)


@pytest.mark.parametrize(("perplexity", "shown"), [(None, ""), (123_456.0, "123,456"), (2.5e30, "2.5e+30")])
def test_a_row_that_diverges_is_called_so(perplexity: float | None, shown: str) -> None:
    broken = {**row("trime", 0.0), "perplexity": perplexity, "diverged": True}
    _, cells = report_table({**REPORT, "rows": [row("plain", 80.0), broken], "outside_repeated_paragraphs": None})
    assert [line[:3] for line in cells] == [["plain", "80", ""], ["trime", shown, "diverges"]]


def shown(report: dict, capsys: pytest.CaptureFixture[str]) -> list[str]:
    show_report("report/0123456789ab", report)
    return capsys.readouterr().err.splitlines()


def test_the_report_says_what_was_tuned_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(REPORT, capsys)
    assert "report/0123456789ab, test, 4,321 tokens" in lines
    assert "memory: external, interpolate, k 1,024, temperature 12.5, lambda 0.25 (tuned on valid)" in lines
    assert "By neighbours read, test (-: not measured)" in lines and "By cache size, test" not in lines


@pytest.mark.parametrize(("counted_in", "split"), [("train", "train"), ("split", "test")])
def test_the_report_says_where_tokens_were_counted(
    counted_in: str, split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown({**REPORT, "frequency_buckets": {**BUCKETS, "counted_in": counted_in}}, capsys)
    assert any(line.startswith(f"Perplexity by how often a token stands in {split} (") for line in lines)
    assert not any("how often" in line for line in shown(REPORT, capsys))


def test_a_cache_and_a_joint_reading_are_told_by_their_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(CACHE, capsys)
    tuned = "(tuned on valid)"
    assert f"memory: long, interpolate, size 2,000 {tuned}, theta 0.3 {tuned}, lambda 0.1 {tuned}" in lines
    assert f"memory: local, joint, theta 1.5, alpha -2 {tuned}" in lines
    assert "By cache size, test" in lines and "By neighbours read, test" not in lines


def test_of_a_memory_that_is_switched_off_no_number_is_said_to_be_tuned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    on = memory("long", size=500, theta=0.3, **{"lambda": 0.1}, tuned=["size", "theta", "lambda"])
    off = memory("long", size=50, theta=0.0, **{"lambda": 0.0}, tuned=["size", "lambda"])
    rows = [row("plain", 80.0), {**row("neural-cache", 70.0), "memories": [on]}]
    report = {**CACHE, "memories": [on], "rows": [*rows, {**row("unigram-cache", 80.0), "memories": [off]}]}
    lines = shown(report, capsys)
    assert "unigram-cache: long, interpolate, theta 0, lambda 0 (tuned on valid)" in lines


def test_of_several_rows_each_says_what_it_was_read_with(capsys: pytest.CaptureFixture[str]) -> None:
    """A reading on top of another is tuned by itself: its weight is not that of the reading alone."""
    datastore, cache = REPORT["memories"][0], {"sources": ["long"], "reader": "interpolate", "size": 50, "lambda": 0.1}
    memories = {"both": [datastore, {**cache, "lambda": 0.02}], "cache": [cache]}
    rows = [row("plain", 80.0), *({**row(name, 70.0), "memories": of} for name, of in memories.items())]
    lines = shown({**REPORT, "rows": rows, "memories": memories["both"]}, capsys)
    assert (
        "both: external, interpolate, k 1,024, temperature 12.5, lambda 0.25 (tuned on valid); "
        "then long, interpolate, size 50, lambda 0.02"
    ) in lines
    assert "cache: long, interpolate, size 50, lambda 0.1" in lines
    assert not any(line.startswith("memory: ") for line in lines)


def test_last_words_are_counted_in_passages(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row("plain", 4000.0), "accuracy": 0.0}]
    lines = shown({**CACHE, "score": "last-word", "words": 500, "rows": rows}, capsys)
    assert "report/0123456789ab, test, 4,321 tokens, the last words of 500 passages" in lines


GATED = {
    **{**REPORT, "memories": [], "rows": [row("plain", 80.0)], "retrieval_accuracy": None},
    "gate": {"neighbors": 4, "mean": 0.7125, "neighbors_right": {"1": 0.312, "2": 0.4, "4": 0.45}},
    "curves": [
        {
            "row": "plain",
            "over": "neighbors",
            "points": [{"neighbors": 0, "perplexity": 90.0}, {"neighbors": 4, "perplexity": 80.0}],
        }
    ],
}


def test_a_gate_is_told_in_a_line_and_by_its_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(GATED, capsys)
    told = "gate: 4 neighbours, mean 0.7125; the best is right for 31.2% of the tokens, one of 4 for 45.0%"
    assert f"{told}." in lines
    assert "By neighbours let in, test" in lines and "By neighbours read, test" not in lines
    assert curves_table(GATED, "neighbors") == (["neighbors", "perplexity plain"], [["0", "90"], ["4", "80"]])
    lone = {**GATED["gate"], "neighbors": 1, "neighbors_right": {"1": 0.312}}
    assert told.split(",")[0].replace("4", "1") in "\n".join(shown({**GATED, "gate": lone}, capsys))
    assert not any(line.startswith("gate") for line in shown({**REPORT, "gate": None}, capsys))


PLAIN_MODEL = SimpleNamespace(config={"method": "lm"})


@pytest.mark.parametrize("files", [(), ("figures/heat-map.svg", "figures/heat-map.png")])
def test_the_folder_of_the_figures_is_named(
    files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = SimpleNamespace(files=dict.fromkeys(files), inputs={})
    show_result(
        SimpleNamespace(
            kind="report",
            reference="report/0123456789ab",
            path=tmp_path,
            manifest=manifest,
            json=lambda name: CACHE,
            input=lambda role: PLAIN_MODEL,
        )
    )
    assert (f"figures: {tmp_path / 'figures'}" in capsys.readouterr().err) == bool(files)


SPLITS = {"vocabulary_size": 300, "tokenizer": "bpe", "splits": {"train": {"documents": 7, "tokens": 900}}}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("kind", "metrics", "shown"),
    [("model", {"steps": 7}, "steps"), ("tokens", SPLITS, "bpe, 300 types"), ("report", {}, "test, 4,321 tokens")],
)
def test_a_reference_that_stands_on_the_screen_is_not_repeated(
    capsys, kind: str, metrics: dict, shown: str, named: bool
) -> None:
    reference, manifest = f"{kind}/0123456789ab", SimpleNamespace(files={}, inputs={})
    made = SimpleNamespace(
        kind=kind,
        reference=reference,
        metrics=metrics,
        config={},
        manifest=manifest,
        json=lambda _: CACHE,
        input=lambda _: PLAIN_MODEL,
    )
    show_result(made, named=named)
    told = capsys.readouterr().err
    (line,) = (line for line in told.splitlines() if shown in line)
    assert (reference in told) != named and (kind == "model" or line.startswith(shown) == named)
    assert ("all 256 bytes" in told) == (kind == "tokens")


@pytest.mark.parametrize(("whole", "shown"), [(True, "stored whole"), (False, "stored as codes")])
def test_figures_that_need_an_explanation_are_shown_as_words(capsys, whole: bool, shown: str) -> None:
    manifest = SimpleNamespace(bytes=28_161_120)
    metrics = {"lossless": whole, "bytes": 20_000_000}
    show_result(SimpleNamespace(kind="index", reference="index/3", metrics=metrics, manifest=manifest))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(maxsplit=1) for line in lines if line[:4] == "keys"] == [["keys", shown]]
    assert [line.removeprefix("on disk").strip() for line in lines if line.startswith("on disk")] == ["28.2 MB"]


def test_words_of_an_index_a_datastore_and_a_model_are_explained_where_they_stand(capsys) -> None:
    index = {"queries": 100, "recall": {"1": 1.0}, "queries_per_second": {"4": 268.6}}
    show_result(SimpleNamespace(kind="index", reference="index/3", metrics=index))
    assert (
        "recall@k: of the k nearest keys of each of these queries, the share that is found" in capsys.readouterr().err
    )
    show_result(SimpleNamespace(kind="index", reference="index/3", metrics={"rows": 9}))
    assert "recall" not in capsys.readouterr().err
    show_result(SimpleNamespace(kind="datastore", reference="datastore/3", metrics={"key": "ffn-input"}))
    assert "ffn-input, what enters the last feed-forward layer" in capsys.readouterr().err
    trained = {"steps": 9, "passes": 8.0, "still_falling": False, "last_validations": [], "valid_step": 9}
    show_result(SimpleNamespace(kind="model", reference="model/3", metrics=trained))
    told = capsys.readouterr().err
    assert "still falling" not in told and "8 passes" in told


def test_a_plain_table_is_aligned_text_of_any_width() -> None:
    long = "x" * 300
    lines = table("", ("name", "n"), [("a", "1"), (long, "1,000")]).splitlines()
    assert [line.split() for line in lines] == [["name", "n"], ["a", "1"], [long, "1,000"]]
    assert len({len(line) for line in lines[1:]}) == 1


def test_a_title_is_a_line_of_its_own_and_empty_headers_are_left_out() -> None:
    assert table("model/0123456789ab", ("", ""), [("steps", "2")]) == "model/0123456789ab\nsteps  2"


@pytest.mark.parametrize("text", ["[red]x[/]", "[/]", "memory: [long:size=3]", "a :heart:", "a\\", "\\[b]"])
def test_nothing_in_a_cell_is_markup(text: str) -> None:
    assert table("", ("", ""), [(text, "1")]) == f"{text}  1"


def test_a_cell_may_have_a_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[32mcat" in table("", ("word",), [(("cat", "green"),)], terminal=True)
    assert table("", ("word",), [(("cat", "green"),)]) == "word\ncat"


def test_a_split_of_tokens_shows_what_matters_first_and_its_unknown_rate() -> None:
    split = {"bytes": 9, "characters": 9, "documents": 1, "paragraphs": 2, "tokens": 5000, "types": 70}
    split["unknown_rate"] = 0.0423
    columns, cells = splits_table({"test": split, "train": {**split, "share": 0.9}})
    first = ["split", "documents", "tokens", "types", "unknown"]
    assert columns == [*first, "characters", "bytes", "paragraphs", "share of text"]
    assert cells[0] == ["train", "1", "5,000", "70", "4.23%", "9", "9", "2", "90.00%"]
    assert cells[1][0] == "test" and cells[1][-1] == ""


def test_a_word_perplexity_that_means_nothing_is_not_shown() -> None:
    rows = [{**row("plain", 80.0), "word_perplexity": value} for value in (321.5, 2.968e210, None)]
    rows += [{**row("plain", 80.0), "word_perplexity": 321.5, "bits_per_character": 0.3}]  # words of 28 characters
    columns, cells = report_table({"rows": rows})
    assert [line[columns.index("word perplexity")] for line in cells] == ["321.5", "", "", ""]


@pytest.mark.parametrize(("text", "new"), [("tokens/1", "110"), ("tokens/2", "")])
def test_a_baseline_stands_above_and_is_compared_with(text: str, new: str) -> None:
    outside = {**REPORT["outside_repeated_paragraphs"], "texts": [{"corpus": "tokens/1", "split": "train"}]}
    theirs = {"texts": [{"corpus": text, "split": "train"}], "rows": [{"row": "plain", "perplexity": 110.0}]}
    baseline = {"report": "report/7", "model": "model/7", "method": "lm", "row": row("plain", 60.0)}
    baseline["outside_repeated_paragraphs"] = theirs
    report = {**REPORT, "outside_repeated_paragraphs": outside, "baseline": baseline, "method": "trime"}
    report["read"] = {"model": "model/9"}
    columns, cells = report_table(with_model_named(report))
    assert [line[:3] for line in cells] == [
        ["plain (model/7)", "60", ""],
        ["plain (model/9)", "80", "+33.3%"],
        ["knn-lm", "72", "+20.0%"],
    ]
    assert [line[columns.index("perplexity on new text")] for line in cells] == [new, "100", "95"]
    assert cells[2][-1] == ("-13.6%" if new else "95"), "without theirs there is no column of changes"


def test_beside_a_baseline_no_table_calls_the_own_row_by_the_name_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    baseline = {"report": "report/7", "model": "model/7", "method": "lm", "row": row("plain", 60.0)}
    baseline["outside_repeated_paragraphs"] = None
    report = {**REPORT, "frequency_buckets": BUCKETS, "baseline": baseline, "method": "lm"}
    show_report("report/1", {**report, "read": {"model": "model/9"}})
    lines = [line.split("  ")[0] for line in capsys.readouterr().err.splitlines() if line.startswith("plain")]
    assert lines == ["plain (model/7)", "plain (model/9)", "plain (model/9)"]
