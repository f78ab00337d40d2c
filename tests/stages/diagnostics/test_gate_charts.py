"""What a gate shows of itself."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.charts.data import Chart
from stages.charts.figure import Figure
from stages.diagnostics.gate import LONGEST_LABEL, GateProbe, spelled

pytestmark = pytest.mark.usefixtures("drawn")

GATE = {
    "neighbors": 4,
    "mean": 0.58,
    "histogram": {"edges": [0.0, 0.5, 1.0], "tokens": [1, 3], "values": [30, 34]},
    "neighbors_right": {"1": 0.25},
    "by_neighbors": [{"neighbors": 4, "perplexity": 80.0}],
}
TEXTS = ["the", " price", "$5", "\n", "\x00", "日本", "$x^{", "electroencephalogram"]
PASSAGE = {
    **{"split": "test", "start": 1000, "stop": 1008},
    "tokens": [
        {"text": text, "probability": 0.25, "gate": [0.125, 0.5, 1.0], "neighbors": ["a", None]} for text in TEXTS
    ],
}


CHARTS = {chart.name: chart for chart in GateProbe.charts({"gate": GATE, "split": "test"}, {"passage.json": PASSAGE})}


def words(chart: Chart) -> set[str]:
    """The text of a figure."""
    drawn = ElementTree.fromstring(Figure(chart).svg).iter("{http://www.w3.org/2000/svg}text")
    return {element.text or "" for element in drawn}


def test_there_is_a_chart_of_all_that_is_known() -> None:
    assert list(CHARTS) == ["gate-histogram", "gate-accuracy", "gate-passage"]
    assert [
        chart.name for chart in GateProbe.charts({"gate": GATE | {"neighbors_right": {}}, "split": "test"}, {})
    ] == ["gate-histogram"]
    assert GateProbe.charts({"gate": None, "split": "test"}, {}) == []


def test_the_histogram_has_every_count() -> None:
    table = CHARTS["gate-histogram"].numbers
    assert table.columns == ("from", "to", "tokens", "values")
    assert table.rows == [(0.0, 0.5, 1, 30), (0.5, 1.0, 3, 34)]
    assert {"mean 0.58", "all dimensions", "mean of a token"} <= words(CHARTS["gate-histogram"])


def test_the_passage_has_every_gate_and_neighbour() -> None:
    table = CHARTS["gate-passage"].numbers
    assert table.columns == ("text", "probability", "gate 0", "gate 1", "gate 2", "neighbor 1", "neighbor 2")
    assert len(table.rows) == len(TEXTS)
    assert table.rows[2] == ("$5", 0.25, 0.125, 0.5, 1.0, "a", None)


def test_tokens_stand_below_their_columns_as_they_are() -> None:
    told = {"the", "␣price", "$5", r"\n", r"\x00", "日本", "$x^{", "electroencephal…", "0: memory", "1: context"}
    assert told <= words(CHARTS["gate-passage"])


@given(st.text())
def test_labels_are_short_and_printable(text: str) -> None:
    label = spelled(text)
    assert label.isprintable()
    assert " " not in label
    assert sum(1 for _ in label) <= 10 * LONGEST_LABEL
