"""Curves through reports whose datastores differ in size."""

from typing import Any

from stages.charts.data import Lines
from stages.charts.datastore_size import datastore_charts
from stages.charts.reported import Report


def report(
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
    found = points([report(400, 30.0, 12.0), report(100, 50.0, 8.0), report(100, 1.0, 1.0, "model/b")])
    assert found == {"perplexity-by-rows": [[(100, 50.0), (400, 30.0)]], "bleu-by-rows": [[(100, 8.0), (400, 12.0)]]}


def test_what_was_not_translated_has_perplexities_alone() -> None:
    assert list(points([report(100, 50.0), report(400, 30.0, 12.0)])) == ["perplexity-by-rows"]


def test_one_size_stored_neighbours_and_other_models_make_none() -> None:
    assert points([report(100, 50.0), report(100, 49.0)]) == {}
    assert points([report(100, 50.0), report(400, 30.0, None, "model/b")]) == {}
    assert points([report(100, 50.0), report(400, 30.0, neighbors="neighbors/a")]) == {}


def test_datastores_of_other_texts_make_none() -> None:
    assert points([report(100, 50.0), report(400, 30.0, corpus="tokens/b")]) == {}
