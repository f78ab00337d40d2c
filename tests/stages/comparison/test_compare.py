"""Translations of two reports are read line by line, whatever characters stand in them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stages.comparison.compare import compare_translations
from stages.comparison.settings import ComparisonSettings
from stages.evaluation.figures.translated import TRANSLATIONS


def report(folder: Path, texts: list[str]) -> Any:
    folder.mkdir()
    file = folder / TRANSLATIONS
    lines = [{"source": text, "reference": text, "rows": {"plain": {"text": text}}} for text in texts]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return SimpleNamespace(manifest=SimpleNamespace(files={TRANSLATIONS: {}}), config={}, file=lambda name: file)


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0c", "\x1e", "\r"])
def test_a_line_ends_where_its_file_says(character: str, tmp_path: Path) -> None:
    texts = [f"a dog and{character} a cat sat on the mat", "so it is and so it will be"]
    a, b = (report(tmp_path / name, texts) for name in "ab")
    found = compare_translations(a, b, ComparisonSettings(samples=5))
    assert found is not None and (found["a"], found["difference"]) == (pytest.approx(100), 0)
