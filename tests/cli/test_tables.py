"""Tables on terminals of few columns."""

import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

from memlm_cli.tables import table
from stages.comparison.sentences import group_tables
from stages.pages.headline import headline
from stages.pages.tables import bucket_table, results_table, seeds_table
from stages.reports.tables import Table
from tests.stages.comparison.found import FOUND, group
from tests.stages.pages.made import source

STYLE = re.compile(r"\x1b\[[0-9;]*m")
SETTINGS = ("perplexity", "bits_per_character", "word_perplexity", "tokens_per_second")
ROWS = [
    {"row": name, **dict(zip(SETTINGS, figures, strict=True))}
    for name, figures in {
        "plain": (1078.63, 1.8931, 4339.2, 76206.1),
        "knn-lm": (970.51, 1.8462, 3519.7, 1382.4),
        "knn-lm, then neural-cache": (870.11, 1.8012, 3301.0, 1017.5),
    }.items()
]
REPORT = {
    "split": "test",
    "tokens": 15117,
    "rows": ROWS,
    "baseline": {
        **{
            "row": {**ROWS[0], "memories": []},
            "model": "model/957bc62373ac",
            "report": "report/957bc62373ac",
        },
        **{"outside_repeated_paragraphs": None, "method": "lm"},
    },
    "read": {"model": "model/de89ea0978b0", "tokens": "tokens/1"},
    "outside_repeated_paragraphs": {
        "repeated_share": 0.08,
        "texts": [],
        "rows": [dict(row) for row in ROWS],
    },
    "change_intervals": {
        **{"samples": 9, "confidence": 0.95, "unit": "document", "units": 57},
        "rows": [
            {"row": row["row"], "interval": [-0.123, -0.081], "on_new_text": [-0.11, -0.04]}
            for row in ROWS
        ],
    },
}
BUCKETS = {
    "counted_in": "train",
    "buckets": [
        {"more_than": 10**place, "at_most": 10 ** (place + 1), "tokens": 123456}
        for place in reversed(range(7))
    ],
    "rows": [{"row": "plain", "perplexity": [4892809.0] * 7}],
}
WORDS = [
    (
        "knn-lm-wikitext103",
        "kNN-LM with the settings of its authors, on two cores or on a GPU",
        "--train --valid",
    )
]


def built(shown: Table) -> tuple[list[str], list[list[str]]]:
    return list(shown.columns), shown.lines


SOURCE = source({**REPORT, "frequency_buckets": BUCKETS})
RESULTS, FREQUENCIES = (
    built(results_table([SOURCE], headline([SOURCE]))),
    built(bucket_table(SOURCE)),
)


def shown(
    columns: int, monkeypatch: pytest.MonkeyPatch, headers: object, rows: object
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    return STYLE.sub("", table("", headers, rows, terminal=True)).splitlines()  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.parametrize(
    "headers, rows", [RESULTS, FREQUENCIES, (("recipe", "what it makes", "files"), WORDS)]
)
def test_no_line_is_longer_than_the_terminal_and_no_figure_or_word_is_broken(
    columns: int, headers: object, rows: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(columns, monkeypatch, headers, rows)
    assert max(map(cell_len, lines)) <= columns
    words = " ".join(lines).split()
    assert [
        word for row in rows for cell in row for word in cell.split() if word not in words
    ] == []


def test_figures_of_a_cell_stay_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(shown(60, monkeypatch, *RESULTS))
    assert text.count("[-12.3, -8.1]") == 2


def test_columns_without_room_follow_below_and_each_part_names_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers, rows = ("", "first", "second", "third"), [("plain", "1" * 12, "2" * 12, "3" * 12)]
    lines = shown(40, monkeypatch, headers, rows)
    assert [line.split() for line in lines if line.startswith("plain")] == [
        ["plain", "1" * 12, "2" * 12],
        ["plain", "3" * 12],
    ]
    assert shown(80, monkeypatch, headers, rows)[-1].split() == list(rows[0])


def test_columns_without_room_are_left_out_where_the_rest_stands_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers, rows = ("", "first", "second", "third"), [("plain", "1" * 12, "2" * 12, "3" * 12)]
    monkeypatch.setenv("COLUMNS", "40")
    lines = STYLE.sub("", table("", headers, rows, terminal=True, whole=False)).splitlines()
    assert [line.split() for line in lines[2:]] == [["plain", "1" * 12, "2" * 12]]


def spread(mean: float) -> dict:
    return {"n": 3, "mean": mean, "deviation": 1.25, "interval": [mean - 3.1, mean + 3.1]}


SEEDS = [
    {
        "row": name,
        "perplexity": spread(mean),
        "change": {"mean": -0.3, "interval": [-0.41, -0.19]},
        "counting": 95.0,
    }
    for name, mean in (("plain", 178.63), ("knn-lm then neural-cache", 170.5))
]
GROUPS = [
    {
        "method": "lm",
        "seeds": [1, 2, 3],
        "reports": ["report/1", "report/2", "report/3"],
        "rows": SEEDS,
    }
] * 2
FEW = group(2, -3.0, [-4.0, -2.0])


@pytest.mark.parametrize(
    "found",
    [
        seeds_table({"split": "test", "confidence": 0.95, "groups": GROUPS}, ["A", "B"]),
        list(group_tables({**FOUND, "by_position": [{"from": 16_384, "to": 32_767, **FEW}]}))[-1],
    ],
)
def test_a_comparison_is_one_table_at_80_columns(
    found: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(80, monkeypatch, *built(found))
    assert sum(set(line) == {"─"} for line in lines) == 1


def test_a_column_of_two_tables_in_one_has_a_header_of_its_own() -> None:
    headers, _ = RESULTS
    assert len(set(headers)) == len(headers)


def test_what_is_wider_than_all_there_is_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(10, monkeypatch, ("",), [("ab cd " + "x" * 25,)]) == [
        "ab cd",
        "x" * 10,
        "x" * 10,
        "x" * 5,
    ]
    assert shown(5, monkeypatch, ("",), [("日本語日本語",)]) == ["日本", "語日", "本語"]
    lines = shown(30, monkeypatch, ("", "path"), [("name", "/" + "x" * 90)])
    assert {cell_len(line) for line in lines[2:-1]} == {30}


def test_elsewhere_a_row_is_a_line() -> None:
    headers, rows = RESULTS
    assert len(table("", headers, rows).splitlines()) == 1 + len(rows)


def test_a_style_is_of_the_text_not_of_the_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "\x1b[31mmissing\x1b[0m" in table(
        "", ("", "x"), [(("missing", "red"), "longer than that")], terminal=True
    )


def test_what_commands_a_terminal_is_spelled_out_in_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[2J" not in table("", ("x",), [("a\x1b[2Jb",)]) + table(
        "", ("x",), [("a\x1b[2Jb",)], terminal=True
    )


def test_a_table_that_no_terminal_shows_is_made_without_rich_s_console() -> None:
    made = "from memlm_cli.tables import table; table('t', ['a'], [['1']])"
    code = f"import sys; {made}; sys.exit('rich.console' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
