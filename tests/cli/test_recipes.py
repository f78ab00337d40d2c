"""Which recipes there are."""

import json

import pytest

from pipelines.recipe import shipped_recipes
from tests.cli.conftest import Memlm


def test_each_recipe_has_a_line_with_its_time_and_hardware(memlm: Memlm) -> None:
    ended = memlm("recipes")
    assert ended.code == 0
    header, *lines = ended.out.splitlines()
    assert header.split() == ["recipe", "what", "it", "makes", "files,", "time,", "hardware"]
    assert [line.split()[0] for line in lines] == shipped_recipes()
    assert all(line.endswith(("two cores", "a GPU", "GPUs")) for line in lines)
    (quickstart,) = (line for line in lines if line.startswith("quickstart"))
    assert quickstart.split(", ")[-2:] == ["three minutes", "two cores"]
    (cache,) = (line for line in lines if line.startswith("neural-cache-ptb "))
    assert "--train --valid --test" in cache and "not measured" in cache


def test_a_terminal_is_not_told_the_usual_files_in_every_line(
    memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlm_cli.work.listings.answers_on_terminal", lambda: True)
    ended = memlm("recipes")
    assert ended.err.count("--train --valid --test") == 1
    # unlike the usual ones: kNN-LM of a pretrained model, and its fine-tuning
    assert ended.out.count("--pretrained") == ended.out.count("--valid") == 2


def test_they_can_be_json(memlm: Memlm) -> None:
    found = json.loads(memlm("recipes", "--json").out)
    assert list(found) == shipped_recipes()
    assert found["quickstart"]["time"] == "three minutes" and found["quickstart"]["inputs"] == {}
    assert set(found["knn-lm-wikitext2"]) == {"description", "time", "hardware", "inputs"}
