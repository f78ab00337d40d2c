"""Charts of numbers that BLEU chose."""

from typing import Any

from stages.charts.bleu import bleu_charts
from stages.charts.data import Lines


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
    charts = bleu_charts(metrics(bleu={"sentences": 200, "rows": [{"row": "knn-mt", "candidates": tried}]}))
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
