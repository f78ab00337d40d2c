"""The tables that end train, evaluate and run."""

import pytest

from memlm_cli.reports import neighbors_table, report_table, show_report
from memlm_cli.tables import size, table


def row(name: str, perplexity: float) -> dict:
    return {
        "row": name,
        "perplexity": perplexity,
        "bits_per_character": 1.5,
        "word_perplexity": None,
        "tokens_per_second": 1234.5,
    }


REPORT = {
    "split": "test",
    "tokens": 4321,
    "rows": [row("plain", 80.0), row("knn-lm", 72.0)],
    "memories": [
        {
            "sources": ["external"],
            "k": 1024,
            "temperature": 12.5,
            "lambda": 0.25,
            "tuned": ["lambda"],
            "tune_split": "valid",
        }
    ],
    "outside_repeated_paragraphs": {
        "repeated_share": 0.2,
        "rows": [{"row": "plain", "perplexity": 100.0}, {"row": "knn-lm", "perplexity": 95.0}],
    },
    "perplexity_by_k": [{"k": 1, "perplexity": 79.0, "lambda": 0.1, "temperature": 3.0}],
    "retrieval_accuracy": {"1": 0.25, "8": 0.5},
}


def test_every_row_is_compared_with_the_first() -> None:
    columns, cells = report_table(REPORT)
    assert columns[:3] == ["", "perplexity", "change"]
    assert cells == [
        ["plain", "80", "", "1.5", "", "1,234", "100", ""],
        ["knn-lm", "72", "-10.0%", "1.5", "", "1,234", "95", "-5.0%"],
    ]


def test_without_repeated_paragraphs_there_is_no_column_for_them() -> None:
    columns, cells = report_table({**REPORT, "outside_repeated_paragraphs": None})
    assert len(columns) == len(cells[0]) == 6


def test_neighbours_are_shown_by_their_number() -> None:
    columns, cells = neighbors_table(REPORT)
    assert columns == ["k", "perplexity", "lambda", "temperature", "retrieval accuracy@k"]
    assert cells == [["1", "79", "0.1", "3", "25.0%"], ["8", "", "", "", "50.0%"]]


def test_the_report_says_what_was_tuned_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    show_report("report/0123456789ab", REPORT)
    err = capsys.readouterr().err
    assert "report/0123456789ab, test, 4,321 tokens" in err
    assert "memory: external, k 1,024, temperature 12.5, lambda 0.25 (tuned on valid)" in err
    assert "20.0% of the tokens stand in paragraphs that are also in train" in err


def test_a_plain_table_is_aligned_text_of_any_width() -> None:
    long = "x" * 300
    lines = table("", ("name", "n"), [("a", "1"), (long, "1,000")]).splitlines()
    assert [line.split() for line in lines] == [["name", "n"], ["a", "1"], [long, "1,000"]]
    assert len({len(line) for line in lines[1:]}) == 1


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (999, "999 B"), (2500, "2.5 kB"), (25.7e9, "25.7 GB"), (3e12, "3.0 TB")]
)
def test_sizes_are_readable(count: float, shown: str) -> None:
    assert size(count) == shown


def test_a_title_is_a_line_of_its_own_and_empty_headers_are_left_out() -> None:
    assert table("model/0123456789ab", ("", ""), [("steps", "2")]) == "model/0123456789ab\nsteps  2"
