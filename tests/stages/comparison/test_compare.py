"""Translations and streams of tasks of two reports, compared."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stages.artifacts.artifact import Artifact
from stages.comparison.compare import compare_translations
from stages.comparison.settings import ComparisonSettings
from stages.comparison.tasks import FIGURES, compare_matrices
from stages.errors import ArtifactError
from stages.reports.fields import TRANSLATIONS


def report(folder: Path, texts: list[str]) -> Any:
    folder.mkdir()
    file = folder / TRANSLATIONS
    lines = [
        {"source": text, "reference": text, "rows": {"plain": {"text": text}}} for text in texts
    ]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return SimpleNamespace(
        manifest=SimpleNamespace(files={TRANSLATIONS: {}}), config={}, file=lambda name: file
    )


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0c", "\x1e", "\r"])
def test_a_line_ends_where_its_file_says(character: str, tmp_path: Path) -> None:
    texts = [f"a dog and{character} a cat sat on the mat", "so it is and so it will be"]
    a, b = (report(tmp_path / name, texts) for name in "ab")
    found = compare_translations(a, b, ComparisonSettings(samples=5))
    assert found is not None and (found["a"], found["difference"]) == (pytest.approx(100), 0)


def matrix(reference: str, tasks: list[str], rows: dict[str, list[float]]) -> Artifact:
    """A matrix whose figures are all the first of its last scores."""
    found: dict[str, Any] = {
        "tasks": tasks,
        "rows": [
            {"row": name, "matrix": [[0.0] * 2, last], **dict.fromkeys(FIGURES, last[0])}
            for name, last in rows.items()
        ],
    }
    found["candidates"] = True  # of which the most frequent label is no control
    return cast("Artifact", SimpleNamespace(reference=reference, metrics=found))


def test_readings_are_paired_by_name_and_tests_by_task() -> None:
    a = matrix("matrix/a", ["x", "y"], {"none": [0.25, 0.5], "mbpa": [0.5, 0.75]})
    b = matrix("matrix/b", ["y", "x"], {"mbpa": [0.125, 1.0], "random": [0.0, 0.0]})
    (row,) = compare_matrices(a, b)["rows"]
    assert row["rows"] == ["mbpa", "mbpa"]
    assert row["tests"] == {"x": [0.5, 1.0, 0.5], "y": [0.75, 0.125, -0.625]}
    assert set(map(tuple, row["figures"].values())) == {(0.5, 0.125, -0.375)}


def test_without_a_common_name_the_first_readings_are_compared() -> None:
    a, b = (
        matrix(name, ["x", "y"], {name: [score, 0.5]})
        for name, score in (("seq", 0.5), ("replay", 0.75))
    )
    (row,) = compare_matrices(a, b)["rows"]
    assert row["rows"] == ["seq", "replay"] and row["tests"]["x"] == [0.5, 0.75, 0.25]


def test_other_tasks_are_refused() -> None:
    a, b = (matrix(name, ["x", name], {"none": [0.5, 0.5]}) for name in "yz")
    with pytest.raises(ArtifactError):
        compare_matrices(a, b)
