"""`memlm run`: recipes from the command line."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from memlm_cli.work.run import took
from tests.cli.conftest import Memlm
from tests.pipelines.conftest import RECIPE


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_a_dry_run_answers_on_stdout_and_makes_nothing(
    memlm: Memlm, recipe: Path, text: Path, tmp_path: Path
) -> None:
    ended = memlm("run", recipe, "--train", text, "--dry-run")
    assert ended.code == 0
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["stage", "command", "state", "why", "artifact"]
    assert [line[0] for line in lines[1:]] == ["tokens", "model", "datastore", "index"]
    assert ended.out.count("would run") == 4
    assert ended.told == ["run: small"]
    assert not (tmp_path / "store").exists()


def test_a_run_prints_the_last_artifact(memlm: Memlm, recipe: Path, text: Path) -> None:
    first = memlm("run", recipe, "--train", text, "--name", "small")
    assert first.reference.startswith("index/")
    assert "small.toml" not in first.out
    assert memlm("artifacts", "show", "index/small").code == 0
    again = memlm("run", recipe, "--train", text, "--json")
    line = json.loads(again.out)
    assert (line["reference"], line["status"]) == (first.reference, "cached")
    assert again.err.count("cached") >= 4
    assert memlm("run", recipe, "--train", text, "--dry-run").out.count("done") == 4


def test_a_full_disk_ends_a_recipe_that_goes_on_when_there_is_room(
    memlm: Memlm, recipe: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5_000))
        ended = memlm("run", recipe, "--train", text)
    assert ended.code == 5
    assert "disk" in ended.err
    assert memlm("run", recipe, "--train", text).code == 0
    assert (tmp_path / "store").is_dir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5_000))
    assert memlm("run", recipe, "--train", text).code == 0  # what is done needs no room


def test_settings_of_a_stage_are_changed_by_its_name(
    memlm: Memlm, recipe: Path, text: Path
) -> None:
    assert memlm("run", recipe, "--train", text).code == 0
    plan = json.loads(
        memlm("run", recipe, "--train", text, "--set", "index.metric=ip", "--dry-run", "--json").out
    )
    assert [stage["done"] for stage in plan] == [True, True, True, False]
    assert plan[-1]["why"].endswith("l2 -> ip")


@pytest.mark.parametrize(
    ("status", "told"),
    [("made", "26.8 s"), ("resumed", "6.3 s now, 26.8 s in all"), ("cached", "6.3 s")],
)
def test_the_time_of_a_stage_is_that_of_its_artifact(status: str, told: str) -> None:
    artifact = SimpleNamespace(manifest=SimpleNamespace(seconds=26.78))
    assert took(SimpleNamespace(artifact=artifact, status=status, seconds=6.34)) == told
