"""The scripts that are run together are there, and what they print is kept."""

import importlib.util
from pathlib import Path

import pytest

from tests.benchmarks import one_run


def test_every_script_is_there() -> None:
    modules = [
        module or f"tests.benchmarks.{name.partition('-')[0]}"
        for name, (module, _) in one_run.RUNS.items()
    ]

    assert [module for module in modules if importlib.util.find_spec(module) is None] == []


def test_what_a_script_prints_is_kept_with_its_command_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(one_run.RUNS, "zen-short", ("this", ["{store}", "{index}"]))

    one_run.run("zen-short", tmp_path, {"store": "a", "index": "index/b"})

    heading, *lines = (tmp_path / "zen-short.txt").read_text().splitlines()
    assert heading.split()[1:6] == ["python", "-m", "this", "a", "index/b"]
    assert heading.endswith(" 0)")
    assert "Zen" in lines[0]
