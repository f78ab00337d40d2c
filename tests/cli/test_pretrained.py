"""A recipe on a pretrained model."""

import json

import pytest

from tests.cli.conftest import Memlm
from tests.stages.pretrained.tiny import saved

pytest.importorskip("transformers")


def test_the_recipe_reads_a_folder_and_is_done_once(memlm: Memlm, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "pretrained", "llama", bos=True)
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", text)]
    command = ("run", "knn-lm-pretrained", *files, "--pretrained", "pretrained", "--set", "report.exclude=self")
    planned = memlm(*command, "--dry-run", "--json")
    assert [step["done"] for step in json.loads(planned.out)] == [False] * 5, planned.err
    report = memlm(*command)
    assert report.reference.startswith("report/")
    figures = json.loads((tmp_path / "store" / report.reference / "metrics.json").read_text())
    assert [row["row"] for row in figures["rows"]] == ["plain", "knn-lm"]
    assert all(step["done"] for step in json.loads(memlm(*command, "--dry-run", "--json").out))


def test_the_model_that_a_recipe_needs_is_asked_for(memlm: Memlm, text):
    ended = memlm("run", "knn-lm-pretrained", "--train", text, "--valid", text, "--test", text)
    assert ended.code == 2 and "pretrained: the model: a folder, FILE.gguf, or hf:NAME" in ended.err
    ended = memlm("run", "quickstart", "--pretrained", "x.gguf")
    assert ended.code == 2 and "has no input 'pretrained'" in ended.err
