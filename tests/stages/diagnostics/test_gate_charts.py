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
        {"text": text, "probability": 0.25, "gate": [0.125, 0.5, 1.0], "neighbors": ["a", None]}
        for text in TEXTS
    ],
}


CHARTS = {
    chart.name: chart
    for chart in GateProbe.charts({"gate": GATE, "split": "test"}, {"passage.json": PASSAGE})
}


def words(chart: Chart) -> set[str]:
    """The text of a figure."""
    drawn = ElementTree.fromstring(Figure.of(chart).svg).iter("{http://www.w3.org/2000/svg}text")
    return {element.text or "" for element in drawn}


def test_there_is_a_chart_of_all_that_is_known() -> None:
    assert list(CHARTS) == ["gate-histogram", "gate-accuracy", "gate-passage"]
    assert [
        chart.name
        for chart in GateProbe.charts({"gate": GATE | {"neighbors_right": {}}, "split": "test"}, {})
    ] == ["gate-histogram"]
    assert GateProbe.charts({"gate": None, "split": "test"}, {}) == []


def test_the_numbers_of_a_drawing_are_all_there() -> None:
    counts, passage = (CHARTS[name].plot.numbers for name in ("gate-histogram", "gate-passage"))
    assert counts[1:3] == [
        ("all dimensions", 0.0, 0.5, 30 / 64),
        ("all dimensions", 0.5, 1.0, 34 / 64),
    ]
    assert {"mean 0.58", "all dimensions", "mean of a token"} <= words(CHARTS["gate-histogram"])
    assert passage[0] == ("", "0", "1", "2") and passage[3] == ("$5", 0.125, 0.5, 1.0)
    assert len(passage) == 1 + len(TEXTS)


def test_tokens_stand_below_their_columns_as_they_are() -> None:
    told = {
        "the",
        "␣price",
        "$5",
        r"\n",
        r"\x00",
        "日本",
        "$x^{",
        "electroencephal…",
        "0: memory",
        "1: context",
    }
    assert told <= words(CHARTS["gate-passage"])


@given(st.text())
def test_labels_are_short_and_printable(text: str) -> None:
    label = spelled(text)
    assert label.isprintable()
    assert " " not in label
    assert sum(1 for _ in label) <= 10 * LONGEST_LABEL
