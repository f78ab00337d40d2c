"""Remarks on gains: what does not beat counting says so before anything else."""

import re
from collections.abc import Callable

import pytest

from stages.numbers import tenths
from stages.reports.counting import AgainstCounting, against_counting
from stages.reports.fields import SHUT
from stages.reports.remarks.gains import (
    row_worse_than_trigram,
    tied,
)
from stages.reports.remarks.table import REPORT, SEEDS, remarks_on
from tests.stages.reports.remarks.figures import DRAWN, METRICS, ROWS, codes, text, trigram

TRAIN = {"corpus": "tokens/1", "split": "train", "tokens": 900}
OTHER = {"corpus": "tokens/2", "split": "train", "tokens": 500}


def control(
    perplexity: float | None, new: float | None = None, *, texts=(TRAIN,), past=None, **others
) -> dict:
    figures = {"perplexity": perplexity, "perplexity_on_new_text": new}
    return {
        "texts": list(texts),
        "past": past,
        "weight": None,
        "tune_split": None,
        **figures,
        **others,
    }


def report(
    *rows: tuple[str, float | None, dict | None], counted: float = 671.0, **others: object
) -> dict:
    """Rows of a model, each with its control."""
    made = [{"row": name, "perplexity": value, "control": held} for name, value, held in rows]
    return {**METRICS, "rows": made, "trigram": trigram(counted, counted), **others}


def numbers(said: str) -> list[float]:
    """Every number of a text."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", said)]


PLAIN = ("plain", 600.0, control(671.0))
KNN = ("knn-lm", 44.8, control(24.7, texts=(TRAIN, OTHER)))
BOTH = ("both", 37.0, control(35.2, past="stream", weight=0.25, tune_split="valid"))
CACHE = ("neural-cache", 30.0, control(35.2, past="document", weight=0.5))


@pytest.mark.parametrize(
    ("shut", "made"), [(9.0, True), (10.0, True), (11.0, False), (None, False)]
)
def test_a_gate_that_gains_nothing_is_told(shut: float | None, made: bool) -> None:
    rows = [{"row": "spalm", "perplexity": 10.0}, {"row": SHUT, "perplexity": shut}]
    assert ("gate-gains-nothing" in codes({**METRICS, "rows": rows})) == made


def test_longer_training_is_not_called_useless_after_few_passes() -> None:
    few, many = (
        text(
            report(PLAIN, counted=400.0, training={"passes": n, "still_falling": False}),
            "worse-than-trigram",
        )
        for n in (2.0, 8.0)
    )
    assert few.replace("2 passes", "8 passes") != many


@pytest.mark.parametrize(("limit", "loses"), [(30.0, True), (50.0, False)])
def test_a_shut_gate_has_no_figure_on_new_text_and_is_held_against_counting_on_all(
    limit: float, loses: bool
) -> None:
    outside = {"repeated_share": 0.5, "rows": [{"row": "plain", "perplexity": 600.0}], "texts": []}
    made = report(PLAIN, (SHUT, 40.0, control(limit)), outside_repeated_paragraphs=outside)
    pair = against_counting(made, made["rows"][1])
    assert pair == AgainstCounting(40.0, limit) and pair.loses == loses


def test_a_row_that_does_not_beat_counting_in_what_it_reads_comes_first() -> None:
    made = report(PLAIN, KNN, CACHE)
    assert codes(made)[0] == "worse-than-counting"
    assert numbers(text(made, "worse-than-counting"))[:2] == [44.8, 24.7]
    several = text(report(PLAIN, KNN, BOTH, CACHE), "worse-than-counting")
    assert numbers(several)[:4] == [44.8, 24.7, 37, 35.2]
    assert "worse-than-counting" not in codes(report(PLAIN, CACHE))


def test_a_model_that_loses_says_so_first_and_once() -> None:
    made = report(("plain", 700.0, control(671.0)), KNN)
    assert codes(made)[0] == "worse-than-trigram" and "worse-than-counting" not in codes(made)
    assert "; nor is knn-lm" in text(made, "worse-than-trigram")
    assert "trigram" not in codes(report(PLAIN))  # the column shows it
    hardly = codes(report(("plain", 660.0, control(671.0)), KNN))
    assert hardly[0] == "worse-than-counting" and "hardly-better-than-trigram" in hardly


def test_of_a_model_that_learned_to_be_read_with_memory_the_row_without_is_not_held_against_counting() -> (
    None
):
    made = report(("plain", 900.0, control(671.0)), ("trime", 90.0, control(80.0)), method="trime")
    assert numbers(text(made, "worse-than-counting"))[:2] == [90, 80]


@pytest.mark.parametrize(
    ("value", "loses"), [(44.8, True), (24.7, True), (24.6, False), (None, True)]
)
def test_a_row_is_worse_where_it_is_not_below(value: float | None, loses: bool) -> None:
    one = report(("knn-lm", value, control(24.7)))
    assert against_counting(one, one["rows"][0]).loses == loses


@pytest.mark.parametrize(
    ("value", "interval", "ties"),
    [
        (26.99, [-0.052, 0.004], True),
        (26.99, [-0.052, -0.001], False),
        (27.60, [-0.005, -0.001], False),
        (20.00, [-0.5, 0.3], True),
        (27.70, [-0.05, 0.06], False),
        (27.60, None, True),
        (26.99, None, False),
        (None, None, False),
    ],
    ids=[
        *("by chance", "surely", "surely by little", "by much, by chance", "worse"),
        *("by little, nobody knows", "by more, nobody knows", "diverges"),
    ],
)
def test_a_row_ties_with_its_control_if_the_interval_holds_no_change(
    value: float | None, interval: list[float] | None, ties: bool
) -> None:
    one = report(PLAIN, ("exact", value, control(27.66, interval=interval)))
    assert against_counting(one, one["rows"][1]).ties == ties
    assert ("ties-with-counting" in codes(one)) == ties
    if ties and interval is not None:
        assert f"{tenths(interval[1], '+')}]" in text(one, "ties-with-counting")


def test_on_new_text_the_interval_on_new_text_decides_and_both_figures_stand_there() -> None:
    outside = {"repeated_share": 0.3, "rows": [{"row": "knn-lm", "perplexity": 21.3}], "texts": []}
    edges = {"interval": [-0.5, -0.4], "interval_on_new_text": [-0.1, 0.1]}
    one = report(
        PLAIN, ("knn-lm", 10.0, control(16.44, 22.08, **edges)), outside_repeated_paragraphs=outside
    )
    pair = against_counting(one, one["rows"][1])
    assert pair == AgainstCounting(21.3, 22.08, [-0.1, 0.1], True) and pair.ties
    assert pair.words(str) == "counting on new text (21.3, counting 22.08)"
    assert numbers(text(one, "ties-with-counting"))[:2] == [21.3, 22.08]


def test_a_row_without_a_control_neither_loses_nor_ties() -> None:
    one = report(("knn-lm", 16.0, None))
    pair = against_counting(one, one["rows"][0])
    assert (pair.loses, pair.ties, pair.change) == (False, False, None)


def test_where_text_was_read_before_the_new_one_decides() -> None:
    outside = {"repeated_share": 0.5, "rows": [{"row": "knn-lm", "perplexity": 50.0}], "texts": []}
    one = report(
        PLAIN,
        ("knn-lm", 20.0, control(9.0, 51.0)),
        outside_repeated_paragraphs=outside,
        counted=9.0,
    )
    assert not against_counting(one, one["rows"][1]).loses  # counting knows the other text by heart
    one["rows"][1]["control"]["perplexity_on_new_text"] = 49.0
    assert against_counting(one, one["rows"][1]) == AgainstCounting(50.0, 49.0, None, True)
    outside = {"repeated_share": 0.5, "rows": [{"row": "plain", "perplexity": 85.0}], "texts": []}
    read = {**METRICS, "trigram": trigram(7.8, 90.0), "outside_repeated_paragraphs": outside}
    assert not {"worse-than-trigram"}.intersection(codes(read)) and "(90 " in text(read, "trigram")
    read["outside_repeated_paragraphs"] = {**outside, "repeated_share": 0.0}
    assert "worse-than-trigram" in codes(read)


def test_the_text_that_was_counted_is_told_where_rows_differ_by_it() -> None:
    said = text(report(PLAIN, KNN, BOTH, CACHE), "counted-texts")
    for part in (
        "plain: train of tokens/1;",
        "knn-lm: train of tokens/1 and train of tokens/2;",
        "what was scored before (weight 0.25, fitted on valid)",
        "what was scored in the same document (weight 0.5)",
    ):
        assert part in said
    assert "counted-texts" not in codes(report(PLAIN, ("knn-lm", 500.0, control(671.0))))
    large = report(("plain", 20.0, control(None, texts=({**TRAIN, "tokens": 103_000_000},))))
    assert "103,000,000" in text(large, "counted-texts")


@pytest.mark.parametrize(
    ("method", "limit", "code", "others"),
    [
        ("lm", 84.5, None, ""),
        ("lm", 80.5, "hardly-better-than-trigram", ""),
        ("lm", 80.0, "worse-than-trigram", ""),
        ("lm", 74.0, "worse-than-trigram", "by more than a little"),
        ("lm", 72.0, "worse-than-trigram", "nor is any other row"),
        ("trime", 79.0, None, ""),
        ("trime", 70.0, "worse-than-trigram", ""),
    ],
)
def test_the_model_is_held_against_counting_three_tokens(
    method: str, limit: float, code: str | None, others: str
) -> None:
    made = {**METRICS, "method": method, "trigram": trigram(limit, limit)}
    found = {"hardly-better-than-trigram", "worse-than-trigram"}.intersection(codes(made))
    assert found == ({code} if code else set()) and f"{limit:g}" in text(made, code or "trigram")
    if code is not None:
        assert "trigram" not in codes(made)
        said = text(made, code)
        assert others in said and said.startswith("knn-lm" if method == "trime" else "plain")
        assert ("other row" in said) == bool(others)


def test_a_model_that_diverged_loses_and_without_a_trigram_nothing_is_told() -> None:
    rows = [{"row": "plain", "perplexity": None}]
    assert "worse-than-trigram" in codes({**METRICS, "rows": rows, "trigram": trigram(9.0)})
    for counted in (None, trigram(None)):
        assert not {"worse-than-trigram", "trigram"}.intersection(
            codes({**METRICS, "trigram": counted})
        )
        assert not row_worse_than_trigram({**METRICS, "trigram": counted}, "plain")


@pytest.mark.parametrize(
    ("training", "longer"),
    [
        (None, True),
        ({"passes": 4, "still_falling": True}, True),
        ({"passes": 8, "still_falling": True}, False),
        ({"passes": 4, "still_falling": False}, False),
    ],
)
def test_a_weak_model_is_to_be_trained_longer_only_where_that_helps(
    training: dict | None, longer: bool
) -> None:
    made = {**METRICS, "training": training, "trigram": trigram(72.0)}
    assert ("Train longer" in text(made, "worse-than-trigram")) == longer
    assert ("undertrained" in codes(made)) == (longer and training is not None)


@pytest.mark.parametrize(
    ("passes", "falling", "made"),
    [(0.5, None, True), (2, True, True), (2, False, False), (2, None, False)],
)
def test_an_evaluation_tells_of_an_undertrained_model(
    passes: float, falling: bool | None, made: bool
) -> None:
    one = {**METRICS, "training": {"passes": passes, "still_falling": falling}}
    assert ("undertrained" in codes(one)) == made
    assert not made or ("falling" in text(one, "undertrained")) == bool(falling)


@pytest.mark.parametrize(
    ("method", "first", "more"),
    [("lm", "plain", set()), ("trime", "plain", {"no-fair-baseline"}), ("spalm", "spalm", set())],
)
def test_the_row_that_changes_are_against_is_named(method: str, first: str, more: set[str]) -> None:
    made = {**METRICS, "method": method, "rows": [{"row": first, "perplexity": 80.0}, *ROWS[1:]]}
    assert text(made, "compared-with").count(f" {first}, model/3 ") == 1
    assert {"no-fair-baseline"}.intersection(codes(made)) == more
    assert "compared-with" not in codes({**made, "rows": ROWS[:1]})
    unlike = {
        "row": ROWS[0],
        "model": "model/2",
        "report": "report/2",
        "method": "lm",
        "differs": ["steps 1, not 2"],
    }
    assert "unlike-baseline" in codes({**made, "baseline": unlike})
    assert "unlike-baseline" not in codes({**made, "baseline": {**unlike, "differs": []}})


@pytest.mark.parametrize(
    ("units", "found"),
    [
        (57, {"intervals"}),
        (19, {"intervals", "rough-intervals"}),
        (5, {"no-intervals"}),
        (1, {"no-intervals"}),
    ],
)
def test_the_sample_of_intervals_is_told(units: int, found: set[str]) -> None:
    made = {**METRICS, "change_intervals": {**DRAWN, "units": units}}
    assert {code for code in codes(made) if "intervals" in code} == found
    for code in found:
        assert f"{units} document" in text(made, code) or code == "intervals"


@pytest.mark.parametrize(
    ("rows", "above", "found"),
    [
        (
            {"plain": 80, "a": 60, "b": 61, "c": 70},
            (None, [-0.001, 0.02], [0.1, 0.2]),
            ("a", ["b"]),
        ),
        (
            {"plain": 80, "a": 61, "b": 60, "c": 60.5},
            ([0, 0.02], None, [-0.1, 0.2]),
            ("b", ["a", "c"]),
        ),
        ({"plain": 80, "a": 60, "b": 61, "c": 70}, (None, [0.001, 0.02], None), None),
        ({"plain": 50, "a": 60, "b": 61, "c": 70}, (None, [-0.001, 0.02], [0.1, 0.2]), None),
        ({"plain": 80, "a": 60, "b": 61, "c": 70}, (None, None, None), None),
        ({"plain": 80, "a": None, "b": 61, "c": 70}, ([-0.1, 0.1], None, None), ("b", ["a"])),
    ],
)
def test_rows_that_chance_may_have_put_apart_tie(
    rows: dict, above: tuple, found: tuple | None
) -> None:
    drawn = [
        {"row": row, "interval": None, "above_lowest": edges}
        for row, edges in zip("abc", above, strict=True)
    ]
    made = [{"row": row, "perplexity": value, "memories": []} for row, value in rows.items()]
    one = {**METRICS, "rows": made, "change_intervals": {**DRAWN, "rows": drawn}}
    assert tied(one) == found and ("ties" in codes(one)) == (found is not None)
    lower = {
        "row": {"row": "plain", "perplexity": 40.0},
        "model": "model/2",
        "report": "report/2",
        "method": "lm",
    }
    assert tied({**one, "baseline": lower}) is None  # the baseline's row is lowest


GAINS = [0.02, 0.01, 0.03, 0.02, 0.02]
POINT = {"perplexity": 60.0, "searched": 0.6}


def learned(gains=GAINS, used=True, searches=None, **memory: object) -> dict:
    figures = {
        "name": "lambda",
        "one_for_all": 0.3,
        "mean": 0.25,
        "fitted_tokens": 5000,
        "held_out_gains": gains,
    }
    figures |= {"used": used, "searches": searches}
    return {**METRICS, "learned_weight": figures, "memories": [{"tune_split": "valid", **memory}]}


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda: learned(), {"learned-weight"}),
        (lambda: learned(used=False), {"unsure-learned-weight"}),
        (lambda: {**METRICS, "searched_share": 0.4}, {"pointers-followed"}),
        (lambda: learned(gains=[], used=False), {"too-short-to-learn"}),
        (
            lambda: learned(searches=[{**POINT, "asked": 0.0}, {**POINT, "asked": 0.5}]),
            {"learned-weight", "searches-made"},
        ),
        (
            lambda: learned(searches=[{**POINT, "asked": share} for share in (0.0, 0.5, 1.0)]),
            {"learned-weight", "worth-of-searches"},
        ),
        (
            lambda: learned(searches=[{"asked": 0.0, "searched": 0, "perplexity": None}]),
            {"learned-weight"},
        ),
    ],
)
def test_a_learned_weight_is_told_with_its_gain(made: Callable[[], dict], found: set[str]) -> None:
    words = ("learn", "searches", "pointers")
    assert {code for code in codes(made()) if any(word in code for word in words)} == found


def test_a_learned_weight_is_told_with_its_figures() -> None:
    assert "-2.0%" in text(learned(), "learned-weight") and "0.25" in text(
        learned(), "learned-weight"
    )
    short = text(learned(gains=[], used=False, searched=0.5), "too-short-to-learn")
    assert "5,000" in short and short.count(". ") == 1


def test_means_over_seeds_are_held_against_counting() -> None:
    def row(name: str, mean: float, counted: float | None) -> dict:
        pair = AgainstCounting(mean, counted)._asdict()
        return {"row": name, "perplexity": {"mean": mean}, "change": None, "against_counting": pair}

    rows = [
        row("plain", 80.0, 95.0),
        row("knn-lm", 72.0, 24.7),
        row("old", 70.0, None),
        row("cache", 72.0, 72.5),
    ]
    group = {
        "label": "A",
        "method": "lm",
        "seeds": [0, 1],
        "reports": ["report/1", "report/2"],
        "rows": rows,
    }
    found = {"split": "test", "confidence": 0.95, "unknown_rate": 0.167, "groups": [group]}
    first, *others = remarks_on(SEEDS, found)
    assert first.code == "seeds-worse-than-counting" and first.text.startswith("A: knn-lm ")
    assert [remark.code for remark in others] == ["unknown-rate", "seeds-tie-with-counting"]
    assert others[-1].text.startswith("A: cache ")


def test_the_severest_remark_comes_first() -> None:
    made = remarks_on(
        REPORT, {**report(PLAIN, KNN, CACHE), "change_intervals": {**DRAWN, "units": 9}}
    )
    assert [remark.severity for remark in made] == sorted(
        (remark.severity for remark in made), reverse=True
    )
