"""Tests of stages.charts.figures.gate."""

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.charts.figures.gate import LONGEST_LABEL, spelled
from tests.stages.charts.figures.test_figures import draw, names, report, table, words

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


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    curve = {"row": "plain", "over": "neighbors", "points": [{"neighbors": k, "perplexity": 90 - k} for k in (0, 1, 4)]}
    files = draw(report(gate=GATE, grid=None, curves=[curve]), tmp_path, PASSAGE)
    assert names(files) == {"perplexity-by-neighbors", "gate-histogram", "gate-passage"}
    return tmp_path


def test_the_histogram_has_every_count(drawn: Path) -> None:
    assert table(drawn, "gate-histogram") == [
        ["from", "to", "tokens", "values"],
        ["0.0", "0.5", "1", "30"],
        ["0.5", "1.0", "3", "34"],
    ]
    assert {"mean 0.58", "all dimensions", "mean of a token"} <= set(words(drawn, "gate-histogram"))


def test_the_passage_has_every_gate_and_neighbour(drawn: Path) -> None:
    header, *rows = table_of_all(drawn)
    assert header == ["text", "probability", "gate 0", "gate 1", "gate 2", "neighbor 1", "neighbor 2"]
    assert len(rows) == len(TEXTS)
    assert rows[2] == ["$5", "0.25", "0.125", "0.5", "1.0", "a", ""]


def table_of_all(drawn: Path) -> list[list[str]]:
    """A table whose texts may hold line ends."""
    with (drawn / "figures/gate-passage.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_tokens_stand_below_their_columns_as_they_are(drawn: Path) -> None:
    shown = words(drawn, "gate-passage")
    assert {"the", "␣price", "$5", r"\n", r"\x00", "日本", "$x^{", "electroencephal…"} <= set(shown)


def test_no_neighbours_is_a_number_of_neighbours(drawn: Path) -> None:
    assert table(drawn, "perplexity-by-neighbors")[1] == ["plain", "0", "90"]
    shown = words(drawn, "perplexity-by-neighbors")
    assert {"0", "1", "4", "neighbours let in"} <= set(shown)
    assert shown.count("plain") == 1


@given(st.text())
def test_labels_are_short_and_printable(text: str) -> None:
    label = spelled(text)
    assert label.isprintable()
    assert " " not in label
    assert sum(1 for _ in label) <= 10 * LONGEST_LABEL


def test_a_model_without_a_gate_gets_none(tmp_path: Path) -> None:
    made: dict[str, Any] = report(grid=None, curves=[])
    assert draw(made, tmp_path) == []
