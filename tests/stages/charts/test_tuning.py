"""What a report tells of its tuning."""

import math
from typing import Any

import pytest

from stages.charts.data import HeatMap, Lines, SmallerIsBetter
from stages.charts.tuning import TuningResult, bleu_charts, tuning_charts, tuning_result


def tuned(nll: list[list[float | None]], plain: float = 90.0) -> dict[str, Any]:
    grid = {
        **{"row": "neural-cache", "over": "size", "at": 2000, "split": "valid"},
        **{
            "scale_name": "theta",
            "scales": [0.0, 0.3],
            "weight_name": "lambda",
            "weights": [0.1, 0.2],
        },
        **{"nll": nll, "plain_nll": math.log(plain)},
    }
    return {"grid": grid, "rows": [{"row": "plain"}]}


def told(nll: list[list[float | None]]) -> TuningResult | None:
    return tuning_result(tuned(nll))


def limit(nll: list[list[float | None]]) -> float:
    plot = tuning_charts(tuned(nll))[0].plot
    assert isinstance(plot, HeatMap) and isinstance(plot.colours, SmallerIsBetter)
    return plot.colours.limit


def test_the_best_place_and_the_limit_of_colours() -> None:
    nll = [[math.log(95), math.log(75)], [None, math.log(75)]]
    found = told(nll)
    assert found is not None and limit(nll) == pytest.approx(90)
    assert found.best == (0, 1)
    assert found.perplexity[1, 0] == math.inf
    assert found.helps and not found.switched_off


def test_where_nothing_is_better_the_largest_that_is_finite_is_the_limit() -> None:
    nll = [[math.log(95), math.log(97)], [None, math.log(96)]]
    found = told(nll)
    assert found is not None
    assert not found.helps and limit(nll) == pytest.approx(97)


def test_memory_that_is_switched_off_is_not_better_however_its_sums_are_rounded() -> None:
    found = told([[math.log(90) * (1 - 1e-15), math.log(97)], [math.log(90), math.log(96)]])
    assert found is not None
    assert not found.helps


def test_without_a_tuning_or_a_finite_number_there_is_nothing_to_tell() -> None:
    assert tuning_result({"grid": None}) is None
    assert told([[None, None], [None, None]]) is None


def metrics(**tuning: Any) -> dict[str, Any]:
    return {"tuning": {"split": "valid", **tuning}}


def candidate(k: int, temperature: float | None, weight: float, bleu: float) -> dict[str, Any]:
    return {"k": k, "temperature": temperature, "lambda": weight, "bleu": bleu}


def test_a_curve_over_each_number_that_had_a_choice_has_the_best_of_the_others() -> None:
    tried = [
        candidate(8, 10.0, 0.4, 1.0),
        candidate(8, 10.0, 0.8, 3.0),
        candidate(8, None, 0.4, 2.5),
        candidate(8, 100.0, 0.4, 2.0),
    ]
    charts = bleu_charts(
        metrics(bleu={"sentences": 200, "rows": [{"row": "knn-mt", "candidates": tried}]})
    )
    points = {}
    for chart in charts:
        assert isinstance(chart.plot, Lines)
        points[chart.name] = list(chart.plot.lines[0].points)
    # k had no choice, and an infinite temperature has no place on an axis
    assert points == {
        "bleu-by-temperature": [(10.0, 3.0), (100.0, 2.0)],
        "bleu-by-lambda": [(0.4, 2.5), (0.8, 3.0)],
    }


def test_where_perplexity_chose_there_is_none() -> None:
    assert bleu_charts(metrics()) == []
