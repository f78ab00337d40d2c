"""Charts of a report, and how many series one holds."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stages.charts.data import Chart, Lines
from stages.charts.figure import Figure
from stages.charts.report import datastore_charts, report_charts
from stages.charts.reported import Report, symbol, symbol_in_words
from tests.snapshot import same_as

pytestmark = pytest.mark.usefixtures("drawn")

PLAIN = math.log(104.2)


def grid(**other: Any) -> dict[str, Any]:
    """Two values of θ and three of λ; one point diverged."""
    return {
        "row": "neural-cache",
        "over": "size",
        "at": 2000,
        "split": "valid",
        "tokens": 217_646,
        "scale_name": "theta",
        "scales": [0.0, 0.3],
        "weight_name": "lambda",
        "weights": [0.1, 0.2, 0.9],
        "nll": [[math.log(90), math.log(95), None], [math.log(75), math.log(80), math.log(500)]],
        "plain_nll": PLAIN,
        **other,
    }


def curve(row: str, over: str, perplexities: dict[int, float | None]) -> dict[str, Any]:
    points = [
        {over: n, "theta": 0.3, "lambda": 0.1, "perplexity": p} for n, p in perplexities.items()
    ]
    return {"row": row, "over": over, "points": points}


def report(**other: Any) -> dict[str, Any]:
    return {
        "split": "test",
        "rows": [{"row": "plain", "perplexity": 99.3}, {"row": "neural-cache", "perplexity": 68.9}],
        "curves": [
            curve("neural-cache", "size", {100: 81.6, 2000: 68.9}),
            curve("unigram-cache", "size", {100: 90.0, 2000: 85.5}),
        ],
        "grid": grid(),
        "gate": None,
        **other,
    }


def charts(**other: Any) -> dict[str, Chart]:
    """Those of a report, by name."""
    return {chart.name: chart for chart in report_charts(report(**other)) if not chart.plot.empty}


def words(chart: Chart) -> list[str]:
    """The text of a figure."""
    drawn = ElementTree.fromstring(Figure.of(chart).svg).iter("{http://www.w3.org/2000/svg}text")
    return [element.text or "" for element in drawn]


def test_a_tuned_cache_gets_every_chart() -> None:
    assert list(charts()) == ["heat-map", "perplexity-by-lambda", "perplexity-by-size"]


def test_numbers_across_do_not_touch() -> None:
    sizes = (50, 100, 200, 500, 1000, 2000, 5000, 5435)
    curves = [curve("neural-cache", "size", {size: 80 - place for place, size in enumerate(sizes)})]
    drawn = words(charts(curves=curves)["perplexity-by-size"])
    assert "5,000" in drawn and "5,435" not in drawn


def test_a_report_without_tuning_and_curves_gets_none() -> None:
    assert charts(curves=[], grid=None) == {}
    assert charts(curves=[curve("neural-cache", "size", {100: 80.0})], grid=None) == {}
    assert charts(curves=[], grid=grid(nll=[[None] * 3] * 2)) == {}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"scales": [0.3], "nll": [[4.4, 4.3, 4.5]]}, {"perplexity-by-lambda"}),
        ({"weights": [0.3], "nll": [[4.4], [4.3]]}, {"perplexity-by-theta"}),
        ({"scales": [0.3], "weights": [0.3], "nll": [[4.4]]}, set()),
        (
            {"weight_name": "alpha", "scale_name": "temperature", "scales": [None, 12.5]},
            {"heat-map", "perplexity-by-alpha"},
        ),
    ],
)
def test_a_chart_needs_two_values_of_what_it_runs_over(
    other: dict[str, Any], expected: set[str]
) -> None:
    assert set(charts(curves=[], grid=grid(**other))) == expected


def test_the_heat_map_has_the_perplexity_of_every_point() -> None:
    columns, *rows = charts()["heat-map"].plot.numbers
    assert columns == ("θ", "0.1", "0.2", "0.9") and [row[0] for row in rows] == ["0", "0.3"]
    assert [value for row in rows for value in row[1:]] == pytest.approx(
        [90, 95, math.inf, 75, 80, 500]
    )


def test_the_heat_map_says_what_it_shows() -> None:
    chart = charts()["heat-map"]
    told = {
        "best 75",
        "104.2 plain",
        "at θ 0.3, λ 0.1",
        "diverged",
        "worse than plain",
        "θ",
        "λ",
        "0",
        "0.3",
        "0.9",
    }
    assert {chart.title, *told} <= set(words(chart))


def test_where_nothing_beats_the_plain_model_all_points_are_coloured() -> None:
    chart = charts(grid=grid(plain_nll=1.0, nll=[[1.1, 1.2, 1.3], [1.4, 1.5, 1.6]]))["heat-map"]
    assert not any(word.startswith("worse") for word in words(chart))


def test_perplexities_that_reach_far_have_a_logarithmic_scale() -> None:
    wide = [[math.log(p) for p in line] for line in ((4000.0, 900.0, 300.0), (2000.0, 100.0, 78.0))]
    chart = charts(grid=grid(plain_nll=math.log(4088), nll=wide))["perplexity-by-lambda"]
    assert {"100", "200", "500", "1,000", "2,000"} <= set(words(chart))


def test_weights_are_shown_at_the_best_scale() -> None:
    chart = charts()["perplexity-by-lambda"]
    points = chart.plot.lines[0].points  # type: ignore[union-attr]
    assert [list(point) for point in points] == [
        pytest.approx(r) for r in ([0.1, 75], [0.2, 80], [0.9, 500])
    ]
    assert {"θ 0.3", "plain", "λ"} <= set(words(chart))


def test_an_infinite_temperature_has_no_place_on_the_axis() -> None:
    infinite = grid(
        weights=[0.3],
        scale_name="temperature",
        scales=[None, 12.5, 25.0],
        nll=[[4.4], [4.3], [4.2]],
    )
    chart = charts(grid=infinite)["perplexity-by-temperature"]
    assert [row[1] for row in chart.plot.numbers[1:]] == [12.5, 25.0]
    assert {"temperature τ", "12.5", "25"} <= set(words(chart))


def test_curves_have_a_line_a_row_and_the_plain_model() -> None:
    chart = charts()["perplexity-by-size"]
    assert chart.plot.numbers[0] == ("line", "cache size", "perplexity")
    assert chart.plot.numbers[2] == ("neural-cache", 2000, 68.9) and len(chart.plot.numbers) == 5
    assert {"neural-cache", "unigram-cache", "plain", "100", "2,000", "cache size"} <= set(
        words(chart)
    )


def test_the_plain_model_is_no_level_where_it_is_a_line() -> None:
    chart = charts(curves=[curve("plain", "neighbors", {0: 90.0, 1: 89.0, 4: 86.0})])[
        "perplexity-by-neighbors"
    ]
    assert chart.plot.numbers[1][:2] == ("plain", 0)
    assert {"0", "1", "4", "neighbours let in"} <= set(words(chart))
    assert words(chart).count("plain") == 1


def test_curves_over_neighbours_and_over_sizes_are_charts_of_their_own() -> None:
    curves = [
        curve("knn-lm", "k", {1: 190.0, 1024: None, 8: 180.0}),
        curve("neural-cache", "size", {10: 9.0, 20: 8.0}),
    ]
    made = charts(curves=curves, grid=None)
    assert set(made) == {"perplexity-by-k", "perplexity-by-size"}
    assert [row[0] for row in made["perplexity-by-size"].plot.numbers[1:]] == ["neural-cache"] * 2


def test_titles_and_captions_are_as_they_were_agreed_on() -> None:
    few = {
        "counted_in": "train",
        "buckets": [
            {"more_than": 10, "at_most": None, "tokens": 900},
            {"more_than": None, "at_most": 0, "tokens": 4},
        ],
        "rows": [
            {"row": name, "nll": [3.0, 6.0], "perplexity": [9.0, 9.0]}
            for name in ("plain", "knn-lm")
        ],
    }
    accuracy = {"retrieval_accuracy": {"1": 0.1}, "retrieval_accuracy_by_chance": {"1": 0.02}}
    cases = {
        "all": charts(frequency_buckets=few, **accuracy),
        "last words": charts(score="last-word"),
        "a window": charts(grid=grid(over="window", at=64), curves=[]),
        "no gain": charts(grid=grid(plain_nll=1.0), curves=[]),
    }
    lines = [
        f"{case}: {one.title}. {one.caption}\n"
        for case, made in cases.items()
        for one in made.values()
    ]
    assert same_as(Path(__file__).with_name("wording.txt"), "".join(lines))


def test_rare_words_are_compared_in_nats() -> None:
    """In shares of perplexity the rare ones, +200 % here, leave nothing to be seen of the frequent."""
    told = {
        "counted_in": "train",
        "buckets": [
            {"more_than": 10, "at_most": None, "tokens": 900},
            {"more_than": None, "at_most": 0, "tokens": 100},
        ],
        "rows": [
            {"row": "plain", "nll": [3.0, 6.0], "perplexity": [math.exp(3.0), math.exp(6.0)]},
            {"row": "knn-lm", "nll": [2.75, 7.1], "perplexity": [math.exp(2.75), math.exp(7.1)]},
            {"row": "broken", "nll": [None, 8.0], "perplexity": [None, math.exp(8.0)]},
        ],
    }
    chart = charts(frequency_buckets=told, grid=None, curves=[])["loss-by-frequency"]
    assert [list(one.values) for one in chart.plot.series] == [  # type: ignore[union-attr]
        [pytest.approx(-0.25), pytest.approx(1.1)],
        [None, 2.0],
    ]
    assert list(chart.plot.groups) == ["> 10", "0"]  # type: ignore[union-attr]


def test_a_bucket_of_few_tokens_has_no_bar() -> None:
    told = {
        "counted_in": "train",
        "buckets": [
            {"more_than": 10, "at_most": None, "tokens": 900},
            {"more_than": None, "at_most": 0, "tokens": 4},
        ],
        "rows": [
            {"row": name, "nll": [nll, 6.0], "perplexity": [9.0, 9.0]}
            for name, nll in (("a", 3.0), ("b", 2.5))
        ],
    }
    chart = charts(frequency_buckets=told, grid=None, curves=[])["loss-by-frequency"]
    assert [list(one.values) for one in chart.plot.series] == [[-0.5, None]]  # type: ignore[union-attr]


def test_accuracy_of_retrieval_rises_over_k_not_over_the_names_of_k() -> None:
    chart = charts(retrieval_accuracy={"1": 0.1, "8": 0.2, "64": 0.3}, grid=None, curves=[])[
        "retrieval-accuracy"
    ]
    assert chart.plot.numbers[1:] == [("test", 1, 0.1), ("test", 8, 0.2), ("test", 64, 0.3)]


def test_the_accuracy_of_retrieval_is_held_against_chance() -> None:
    found = {"retrieval_accuracy": {"1": 0.1}, "retrieval_accuracy_by_chance": {"1": 0.02}}
    chart = charts(**found, grid=None, curves=[])["retrieval-accuracy"]
    assert [line.label for line in chart.plot.lines] == ["test", "test, by chance"]  # type: ignore[union-attr]
    assert chart.plot.numbers[1:] == [("test", 1, 0.1), ("test, by chance", 1, 0.02)]


def test_charts_need_nothing_that_computes() -> None:
    code = (
        "import sys, stages.charts.report, stages.charts.figure; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = "import sys, stages.charts.data; sys.exit(bool({'numpy', 'pydantic', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_heat_map_whose_cells_are_all_finite_has_both_ends_of_its_colours() -> None:
    """Two labels and two ends: the library joins legends that look alike."""
    chart = charts(
        grid=grid(nll=[[math.log(90), math.log(95), 6.0], [math.log(75), math.log(80), 6.0]])
    )["heat-map"]
    assert {"best 75", "104.2 plain", "at θ 0.3, λ 0.1", "worse than plain"} <= set(words(chart))


def test_a_parameter_has_its_symbol_and_its_words() -> None:
    names = ("temperature", "k", "lambda", "size")
    assert [symbol(name) for name in names] == ["τ", "k", "λ", "cache size"]
    assert [symbol_in_words(name) for name in names] == [
        "temperature τ",
        "neighbours read",
        "λ",
        "cache size",
    ]


def test_a_parameter_of_somebody_else_keeps_its_name() -> None:
    assert symbol("depth") == symbol_in_words("depth") == "depth"


def sized(
    rows: int,
    perplexity: float,
    bleu: float | None = None,
    model: str = "model/a",
    corpus: str = "tokens/a",
    **read: str,
) -> Report:
    texts = [{"corpus": corpus, "split": "train"}]
    held: dict[str, Any] = {"row": "knn-mt", "perplexity": perplexity, "control": {"texts": texts}}
    if bleu is not None:
        held["bleu"] = bleu
    metrics = {
        "read": {"model": model, "datastore": f"datastore/{rows}", **read},
        "rows": [{"row": "plain", "perplexity": 99.0}, held],
        "tuning": {"largest": {"k": rows, "size": 5}},
    }
    return Report(metrics, "test")


def points(reports: list[Report]) -> dict[str, list[list[tuple[float, float]]]]:
    found = {}
    for chart in datastore_charts(reports):
        assert isinstance(chart.plot, Lines)
        found[chart.name] = [list(line.points) for line in chart.plot.lines]
    return found


def test_reports_of_one_model_make_a_line_over_their_rows() -> None:
    found = points([sized(400, 30.0, 12.0), sized(100, 50.0, 8.0), sized(100, 1.0, 1.0, "model/b")])
    assert found == {
        "perplexity-by-rows": [[(100, 50.0), (400, 30.0)]],
        "bleu-by-rows": [[(100, 8.0), (400, 12.0)]],
    }


def test_what_was_not_translated_has_perplexities_alone() -> None:
    assert list(points([sized(100, 50.0), sized(400, 30.0, 12.0)])) == ["perplexity-by-rows"]


def test_one_size_stored_neighbours_and_other_models_make_none() -> None:
    assert points([sized(100, 50.0), sized(100, 49.0)]) == {}
    assert points([sized(100, 50.0), sized(400, 30.0, None, "model/b")]) == {}
    assert points([sized(100, 50.0), sized(400, 30.0, neighbors="neighbors/a")]) == {}


def test_datastores_of_other_texts_make_none() -> None:
    assert points([sized(100, 50.0), sized(400, 30.0, corpus="tokens/b")]) == {}
