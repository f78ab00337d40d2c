"""Which figures a report gets, what stands in their numbers, and that their bytes depend on nothing else."""

import csv
import math
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest

from stages.charts.figures import draw_figures

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
    points = [{over: n, "theta": 0.3, "lambda": 0.1, "perplexity": p} for n, p in perplexities.items()]
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


def draw(made: dict[str, Any], folder: Path, passage: dict[str, Any] | None = None) -> list[str]:
    def add(file: str) -> Path:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    return draw_figures(made, add, passage)


def names(files: list[str]) -> set[str]:
    return {Path(file).stem for file in files}


def table(folder: Path, name: str) -> list[list[str]]:
    return list(csv.reader((folder / f"figures/{name}.csv").read_text("utf-8").splitlines()))


def words(folder: Path, name: str) -> list[str]:
    """The text of a figure."""
    drawn = ElementTree.parse(folder / f"figures/{name}.svg").iter("{http://www.w3.org/2000/svg}text")
    return [element.text or "" for element in drawn]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report whose figures are drawn."""
    folder = tmp_path_factory.mktemp("report")
    draw(report(), folder)
    return folder


def test_a_tuned_cache_gets_every_figure_in_three_formats(tmp_path: Path) -> None:
    files = draw(report(), tmp_path)
    assert names(files) == {"heat-map", "perplexity-by-lambda", "perplexity-by-size"}
    assert sorted(files) == sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    for file in files:
        begins = {".svg": b"<?xml", ".png": b"\x89PNG", ".csv": b""}[Path(file).suffix]
        assert (tmp_path / file).read_bytes().startswith(begins)


def test_a_report_without_tuning_and_curves_gets_none(tmp_path: Path) -> None:
    assert draw(report(curves=[], grid=None), tmp_path) == []
    assert draw(report(curves=[curve("neural-cache", "size", {100: 80.0})], grid=None), tmp_path) == []
    assert draw(report(curves=[], grid=grid(nll=[[None] * 3] * 2)), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"scales": [0.3], "nll": [[4.4, 4.3, 4.5]]}, {"perplexity-by-lambda"}),
        ({"weights": [0.3], "nll": [[4.4], [4.3]]}, set()),
        (
            {"weight_name": "alpha", "scale_name": "temperature", "scales": [None, 12.5]},
            {"heat-map", "perplexity-by-alpha"},
        ),
    ],
)
def test_a_figure_needs_two_values_of_what_it_runs_over(
    other: dict[str, Any], expected: set[str], tmp_path: Path
) -> None:
    assert names(draw(report(curves=[], grid=grid(**other)), tmp_path)) == expected


def test_the_heat_map_has_the_perplexity_of_every_point(drawn: Path) -> None:
    header, *rows = table(drawn, "heat-map")
    assert header == ["theta", "lambda", "perplexity"]
    assert [row[:2] for row in rows] == [[s, w] for s in ("0.0", "0.3") for w in ("0.1", "0.2", "0.9")]
    assert [float(row[2]) for row in rows] == pytest.approx([90, 95, math.inf, 75, 80, 500])


def test_the_heat_map_says_what_it_shows(drawn: Path) -> None:
    text = words(drawn, "heat-map")
    assert "Perplexity on valid: neural-cache, cache size 2,000" in text
    assert "plain 104.2, best 75 at θ 0.3, λ 0.1" in text
    assert {"best", "diverged", "worse than plain", "θ", "λ", "0", "0.3", "0.1", "0.2", "0.9"} <= set(text)


def test_colours_end_at_the_plain_model(tmp_path: Path) -> None:
    """However large the largest perplexity is, the ticks of the colour bar lie between best and plain."""
    draw(report(grid=grid(nll=[[4.4, 4.5, 300.0], [4.3, 4.4, 5000.0]])), tmp_path)
    ticks = [float(word) for word in words(tmp_path, "heat-map") if word.isdigit()]
    assert 70 < max(ticks) <= 104


def test_perplexities_that_reach_far_have_logarithmic_scales(tmp_path: Path) -> None:
    wide = [[math.log(p) for p in line] for line in ((4000.0, 900.0, 300.0), (2000.0, 100.0, 78.0))]
    draw(report(grid=grid(plain_nll=math.log(4088), nll=wide)), tmp_path)
    for name in ("heat-map", "perplexity-by-lambda"):
        assert {"100", "200", "500", "1,000", "2,000"} <= set(words(tmp_path, name))


def test_where_nothing_beats_the_plain_model_all_points_are_coloured(tmp_path: Path) -> None:
    draw(report(grid=grid(plain_nll=1.0, nll=[[1.1, 1.2, 1.3], [1.4, 1.5, 1.6]])), tmp_path)
    assert "worse than plain" not in words(tmp_path, "heat-map")


def test_weights_are_shown_at_the_best_scale(drawn: Path) -> None:
    header, *rows = table(drawn, "perplexity-by-lambda")
    assert header == ["lambda", "perplexity"]
    assert [[float(cell) for cell in row] for row in rows] == [
        pytest.approx(r) for r in ([0.1, 75], [0.2, 80], [0.9, 500])
    ]
    assert {"θ 0.3", "plain", "λ"} <= set(words(drawn, "perplexity-by-lambda"))


def test_curves_have_a_line_a_row_and_the_plain_model(drawn: Path) -> None:
    header, *rows = table(drawn, "perplexity-by-size")
    assert header == ["row", "size", "theta", "lambda", "perplexity"]
    assert rows[1] == ["neural-cache", "2000", "0.3", "0.1", "68.9"] and len(rows) == 4
    assert {"neural-cache", "unigram-cache", "plain", "100", "2,000", "cache size"} <= set(
        words(drawn, "perplexity-by-size")
    )


def test_curves_over_neighbours_and_over_sizes_are_figures_of_their_own(tmp_path: Path) -> None:
    curves = [curve("knn-lm", "k", {1: 190.0, 1024: None, 8: 180.0}), curve("neural-cache", "size", {10: 9.0, 20: 8.0})]
    files = draw(report(curves=curves, grid=None), tmp_path)
    assert names(files) == {"perplexity-by-k", "perplexity-by-size"}
    assert [row[0] for row in table(tmp_path, "perplexity-by-size")[1:]] == ["neural-cache"] * 2


@pytest.mark.parametrize("far", [1e9, 1e300])
def test_what_explodes_leaves_the_rest_to_be_seen(far: float, tmp_path: Path) -> None:
    curves = [curve("neural-cache", "size", {10: 68.9, 20: 80.0, 50: far})]
    exploded = grid(nll=[[4.4, 4.5, 600.0], [4.3, 4.4, 700.0]])
    draw(report(curves=curves, grid=exploded), tmp_path)
    for name in ("perplexity-by-size", "perplexity-by-lambda"):
        assert max(float(word) for word in words(tmp_path, name) if word.isdigit()) <= 210


def test_last_words_are_called_so(tmp_path: Path) -> None:
    draw(report(score="last-word"), tmp_path)
    assert "Perplexity of last words on test" in words(tmp_path, "perplexity-by-size")
    assert "Perplexity of last words on valid: neural-cache, cache size 2,000" in words(tmp_path, "heat-map")


def test_local_memory_is_told_by_its_window(tmp_path: Path) -> None:
    draw(report(grid=grid(over="window", at=64)), tmp_path)
    assert "Perplexity on valid: neural-cache, window 64" in words(tmp_path, "heat-map")


def test_the_same_numbers_give_the_same_bytes_whatever_the_settings_of_matplotlib(drawn: Path, tmp_path: Path) -> None:
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "svg.fonttype": "path"}):
        files = draw(report(), tmp_path)
        assert matplotlib.rcParams["font.size"] == 20
    for file in files:
        assert (tmp_path / file).read_bytes() == (drawn / file).read_bytes(), file


def test_drawing_needs_no_pyplot() -> None:
    code = "import sys, stages.charts.figures; sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
