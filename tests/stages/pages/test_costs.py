"""Rows of several reports, by what they gain and cost."""

from typing import Any

from stages.charts.data import Points
from stages.pages.costs import costs_table, gain_charts, named_rows

PLAIN = ("plain", 100.0, None, 10.0)
LABELS = ["first", "second", "tuned"]


def group(model: str, *rows: tuple[str, float, float | None, float]) -> dict[str, Any]:
    """A group of two seeds whose rows have a perplexity, a change and seconds."""
    return {
        "reports": ["report/a", "report/b"],
        "models": [f"{model}/0", f"{model}/1"],
        "rows": [
            {
                "row": name,
                "perplexity": {"mean": mean, "interval": (mean - 2, mean + 2)},
                "change": None if change is None else {"mean": change, "interval": None},
                "over_documents": None if change is None else (change - 0.02, change + 0.01),
                "counting": 150.0,
                "bits_per_byte": mean / 50,
                "costs": {
                    "seconds": seconds,
                    "searches_per_token": 0.0,
                    "bytes_beside_model": None,
                },
            }
            for name, mean, change, seconds in rows
        ],
    }


def comparison(*groups: dict[str, Any]) -> dict[str, Any]:
    for one in groups:
        for row in one["rows"]:
            row["costs"] |= dict.fromkeys(("tokens_per_second", "forward_tokens"))
    return {"split": "test", "confidence": 0.95, "groups": list(groups)}


COMPARISON = comparison(
    group("model", PLAIN, ("cache", 80.0, -0.2, 12.0)),
    group("model", PLAIN, ("kNN-LM", 70.0, -0.3, 90.0)),
    group("tuned", ("plain", 90.0, -0.1, 80.0)),
)


def test_a_row_stands_once_and_one_of_another_model_has_its_label() -> None:
    names = [name for name, _ in named_rows(COMPARISON, LABELS)]
    assert names == ["plain", "cache", "kNN-LM", "tuned: plain"]
    other = comparison(group("model", PLAIN), group("model", ("plain", 99.0, -0.01, 10.0)))
    assert len(named_rows(other, LABELS[:2])) == 2, "its perplexity is another"


def test_a_table_has_gains_over_seeds_and_documents_and_the_costs_that_are_known() -> None:
    table = costs_table(COMPARISON, LABELS)
    assert table.columns[-3:] == ("bits/byte", "searches/token", "seconds")
    plain, cache, knn, _ = table.lines
    assert plain[:3] == ["plain", "100.00 ± 2.00", ""]
    assert cache[1:5] == ["80.00 ± 2.00", "-20.0% [-22.0, -19.0]", "150.00", "1.6000"]
    assert knn[0] == "kNN-LM best" and knn[-1] == "90"
    assert "of 2 seeds" in table.caption and "searches of stored entries" in table.caption


def test_a_chart_is_made_of_each_cost_that_differs() -> None:
    (chart,) = gain_charts(COMPARISON, LABELS)
    assert chart.name == "gain-by-seconds"
    assert isinstance(chart.plot, Points)
    assert chart.plot.known == [
        ("cache", 12.0, -0.2),
        ("kNN-LM", 90.0, -0.3),
        ("tuned: plain", 80.0, -0.1),
    ]
