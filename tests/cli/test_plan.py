"""`memlm plan`: disk is what is then written, and what is not known is a question mark."""

import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from stages.artifacts.store import Store
from tests.cli.conftest import Memlm
from tests.stages.pretrained import tiny
from tests.stages.small_text import story

RECIPE = """
[inputs]
train = "text"
valid = "text"

[stages.tokens]
command = "tokenize"
with = { train = "{train}", valid = "{valid}" }
settings = { tokenizer = "TOKENIZER" }

[stages.batches]
command = "pack-batches"
from = "tokens"
settings = { segment_length = 16 }

[stages.model]
command = "train"
from = "tokens"
preset = "tiny"
settings = { steps = 2, segment_length = 16, batch_tokens = 32, model = { layers = 1, width = 64, heads = 2 } }

[stages.datastore]
command = "build-datastore"
from = "model"

[stages.index]
command = "build-index"
from = "datastore"
settings = { index = "INDEX" }

[stages.neighbors]
command = "precompute-neighbors"
from = "index"

[stages.report]
command = "evaluate"
from = "neighbors"
settings = { split = "valid", memory = ["external:lambda=0.1"] }
"""
WORDS = [f"w{number:03d}{'abcdefgh'[number % 8] * (number % 7)}" for number in range(400)]


class Plan(NamedTuple):
    """What a plan says."""

    stages: dict[str, dict[str, Any]]
    whole: dict[str, Any]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Text of fifty kilobytes, as the options of a recipe."""
    words, options = random.Random(0), []
    for split, lines in (("train", 800), ("valid", 100)):
        path = tmp_path / f"{split}.txt"
        path.write_text("\n".join(" ".join(words.choices(WORDS, k=8)) for _ in range(lines)) + "\n")
        options += [f"--{split}", str(path)]
    return options


def recipe(folder: Path, tokenizer: str = "word", index: str = "flat") -> Path:
    path = folder / "recipe.toml"
    path.write_text(RECIPE.replace("TOKENIZER", tokenizer).replace("INDEX", index))
    return path


def planned(memlm: Memlm, *words: object) -> Plan:
    ended = memlm("plan", *words, "--json")
    assert ended.code == 0, ended.err
    whole = json.loads(ended.out)
    return Plan({stage["stage"]: stage for stage in whole["stages"]}, whole)


def written(store: Path, reference: str) -> int:
    """Bytes of the files of an artifact, the manifest apart."""
    files = [
        file
        for file in (store / reference).rglob("*")
        if file.is_file() and file.name != "manifest.json"
    ]
    return sum(file.stat().st_size for file in files)


@pytest.fixture
def tokenized(memlm: Memlm, files: list[str]) -> str:
    """The tokens that the recipe makes first."""
    return memlm("tokenize", *files, "--tokenizer", "word").reference


def test_disk_is_what_is_then_written_and_a_time_is_that_of_another_seed(
    memlm: Memlm, tmp_path: Path, files: list[str], tokenized: str
) -> None:
    chain, store = recipe(tmp_path, index="ivf-flat"), tmp_path / "store"
    before = planned(memlm, chain, *files)
    assert memlm("run", chain, *files).code == 0
    after = planned(memlm, chain, *files)
    assert before.stages["tokens"]["state"] == "done"
    for name in ("batches", "model", "datastore", "index", "neighbors"):
        stage = before.stages[name]
        assert (stage["state"], stage["seconds"]) == ("new", None)
        bytes_written = written(store, after.stages[name]["reference"])
        assert stage["disk"] == pytest.approx(bytes_written, rel=0.02), name
    assert before.stages["report"]["disk"] is None
    assert before.whole["disk"]["complete"] is False
    known = [stage["disk"] for stage in before.stages.values() if stage["state"] == "new"]
    assert before.whole["disk"]["stays"] == sum(disk or 0 for disk in known)
    assert (after.whole["disk"]["stays"], after.whole["disk"]["complete"]) == (0, True)

    seeded = (chain, *files, "--set", "model.seed=1")
    again = planned(memlm, *seeded).stages
    for name in ("model", "datastore", "index"):
        manifest = json.loads(
            (store / after.stages[name]["reference"] / "manifest.json").read_text()
        )
        assert again[name]["seconds"] == manifest["seconds"], name
    assert again["model"]["why"] == "settings changed: seed: 0 -> 1"
    assert again["datastore"]["why"] == "reads model"
    assert "the same settings took" in memlm("plan", *seeded).out

    longer = planned(memlm, chain, *files, "--set", "model.steps=4").stages
    assert {stage["seconds"] for stage in longer.values()} == {None}


def test_a_command_is_planned_as_it_is_typed(
    memlm: Memlm, tmp_path: Path, files: list[str]
) -> None:
    tokens = memlm("tokenize", *files, "--tokenizer", "char").reference
    typed = ["train", tokens, "--segment-length", "16", "--steps", "3"]
    (stage,) = planned(memlm, *typed).stages.values()
    assert (stage["command"], stage["why"], stage["state"]) == ("train", "not made yet", "new")
    assert memlm(*typed).reference == stage["reference"]
    (stage,) = planned(memlm, *typed).stages.values()
    assert stage["state"] == "done"
    ended = memlm("plan", "build-datastore", stdin=stage["reference"] + "\n")
    assert ended.code == 0
    assert "build-datastore" in ended.out
    assert ended.out.splitlines()[-1].startswith("disk: ")


def test_where_a_time_is_not_known_that_of_a_shipped_recipe_is_said(memlm: Memlm) -> None:
    ended = memlm("plan", "quickstart")
    assert "three minutes" in ended.out


def test_the_needs_of_stages_behind_new_tokens_are_not_known(
    memlm: Memlm, tmp_path: Path, files: list[str]
) -> None:
    before = planned(memlm, recipe(tmp_path), *files)
    assert all(stage["disk"] is None for stage in before.stages.values())
    assert before.stages["model"]["why"] == "reads tokens"
    assert before.whole["disk"]["complete"] is False
    assert "?" in memlm("plan", recipe(tmp_path), *files).out
    assert not (tmp_path / "store").exists()


def test_too_little_disk_is_exit_code_5_with_what_would_help(
    memlm: Memlm, tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch, tokenized: str
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=300_000))
    ended = memlm("plan", recipe(tmp_path), *files)
    assert ended.code == 5
    assert "stage " in ended.out  # the table is there all the same
    assert "300.0 kB" in ended.err
    assert "--batch-tokens" in ended.err


def test_too_little_memory_is_exit_code_5(
    memlm: Memlm, tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch, tokenized: str
) -> None:
    monkeypatch.setattr("memlm_cli.work.plan.memory_bytes", lambda: 100_000)
    ended = memlm("plan", recipe(tmp_path), *files, "--json")
    assert ended.code == 5
    problems = json.loads(ended.out)["problems"]
    told = [problem for problem in problems if problem.startswith("index ")]
    assert "--index ivf-pq" in told[0]


def with_gpu(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    """A machine with a GPU of so many bytes, on which plans are made, and nothing is computed."""
    monkeypatch.setattr("stages.models.devices.device_name", lambda name: "Small GPU")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (memory, memory))
    monkeypatch.setattr(
        "stages.models.computing.gpus", lambda: [{"name": "Small GPU", "memory": memory, "free": 0}]
    )


def test_memory_of_a_gpu_stands_beside_that_of_the_machine(
    memlm: Memlm, tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch, tokenized: str
) -> None:
    on_cpu = planned(memlm, recipe(tmp_path), *files).stages
    assert {name for stage in on_cpu.values() for name in stage["memory"]} == {"cpu"}
    with_gpu(monkeypatch, 80 * 10**9)
    stages = planned(memlm, recipe(tmp_path), *files).stages
    for name in ("model", "datastore", "report"):
        memory = stages[name]["memory"]
        assert memory["Small GPU"] > 0
        assert sum(memory.values()) == on_cpu[name]["memory"]["cpu"]
    assert stages["report"]["memory"]["cpu"] > 0
    assert stages["index"]["memory"].keys() == {"cpu"} and not stages["tokens"]["memory"]
    ended = memlm("plan", recipe(tmp_path), *files)
    assert ended.code == 0, ended.err
    assert next(row for row in ended.out.splitlines() if row.startswith("model ")).endswith(
        "of the GPU"
    )


def test_too_little_memory_of_a_gpu_is_exit_code_5_with_what_would_help(
    memlm: Memlm, tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch, tokenized: str
) -> None:
    with_gpu(monkeypatch, 10**6)
    ended = memlm("plan", recipe(tmp_path), *files)
    assert ended.code == 5 and ended.out.startswith("stage")
    assert "Small GPU" in ended.err and "1.0 MB" in ended.err
    assert "--batch-tokens" in ended.err and "--accumulate" in ended.err
    assert memlm("run", recipe(tmp_path), *files).code == 5
    assert memlm("artifacts", "list", "model").out == ""


@pytest.mark.parametrize("options", [("--forget", "1-2"), ("--forget", "3", "--add", "MORE")])
def test_a_datastore_that_is_changed_is_foretold(
    memlm: Memlm, tmp_path: Path, options: tuple[str, ...]
) -> None:
    store, later = Store(tmp_path / "store"), tmp_path / "later.txt"
    (tmp_path / "first.txt").write_text(story(12, 6))
    later.write_text(story(12, 7))
    splits = ("--train", tmp_path / "first.txt", "--valid", later, "--documents", "blank-line")
    own = memlm("tokenize", *splits, "--tokenizer", "char").reference
    more = memlm(
        "tokenize", "--tokenizer", own, "--train", later, "--documents", "blank-line"
    ).reference
    small = (
        "--steps",
        "2",
        "--segment-length",
        "16",
        "--set",
        "model.layers=1",
        "--set",
        "model.width=32",
    )
    datastore = memlm("build-datastore", stdin=memlm("train", own, *small).out).reference
    typed = ["update-datastore", datastore, "--device", "cpu"]
    typed += [more if word == "MORE" else word for word in options]
    (told,) = planned(memlm, *typed).stages.values()
    made = memlm(*typed)
    assert made.code == 0, made.err
    assert (told["reference"], told["scratch"]) == (made.reference, 0)
    assert told["disk"] == pytest.approx(written(store.root, made.reference), rel=0.02)
    assert told["memory"]["cpu"] > 0 and told["seconds"] is None
    (indexed,) = planned(memlm, "build-index", made.reference).stages.values()
    assert indexed["disk"] is not None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_is_imported_is_foretold_with_all_behind_it(
    memlm: Memlm, tmp_path: Path, files: list[str], dtype: str
) -> None:
    pytest.importorskip("transformers")
    model = tiny.saved(
        tmp_path / "pretrained", "llama", bos=True, hidden_size=128, intermediate_size=256
    )
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path / "pretrained")
    (tmp_path / "short.txt").write_text("the cat sat on the mat\n" * 50)
    text = [
        word
        for split in ("train", "valid", "test")
        for word in (f"--{split}", tmp_path / "short.txt")
    ]
    command = (
        "knn-lm-pretrained",
        *text,
        "--pretrained",
        tmp_path / "pretrained",
        "--set",
        "report.exclude=self",
    )
    assert memlm("tokenize", *text, "--tokenizer", tmp_path / "pretrained").code == 0
    told = planned(memlm, *command)
    ended = memlm("run", *command)
    assert ended.code == 0, ended.err
    really = planned(memlm, *command)
    for name in ("model", "datastore", "index"):
        assert told.stages[name]["disk"] == pytest.approx(really.stages[name]["disk"], rel=0.02), (
            name
        )
    stage = told.stages["model"]
    assert stage["scratch"] == 0
    imported = Store(tmp_path / "store").open(really.stages["model"]["reference"])
    bytes_per_weight = 8 if dtype == "float32" else 10
    assert stage["memory"]["cpu"] == bytes_per_weight * imported.metrics["parameters"]


def test_an_artifact_that_is_not_there_is_exit_code_4(memlm: Memlm) -> None:
    assert memlm("plan", "train", "tokens/none").code == 4


def test_a_recipe_that_changes_a_datastore_goes_on_from_every_stage(
    memlm: Memlm, tmp_path: Path, files: list[str]
) -> None:
    for file in files[1::2]:
        Path(file).write_text("".join(Path(file).read_text().splitlines(keepends=True)[:60]))
    begins, _, ends = RECIPE.partition("[stages.neighbors]")
    report = ends[ends.index("[stages.report]") :].replace('"neighbors"', '"index"')
    less = '[stages.less]\ncommand = "update-datastore"\nfrom = "datastore"\nsettings = { forget = ["1-3"] }\n\n'
    text = begins.replace("[stages.index]", f"{less}[stages.index]").replace(
        '"datastore"\nsettings = { index', '"less"\nsettings = { index'
    )
    chain = tmp_path / "recipe.toml"
    chain.write_text(
        (text + report).replace('TOKENIZER"', 'char", documents = "line"').replace("INDEX", "flat")
    )
    tokens = memlm("tokenize", *files, "--tokenizer", "char", "--documents", "line").reference
    told = planned(memlm, chain, *files)
    assert (told.stages["tokens"]["reference"], told.stages["tokens"]["state"]) == (tokens, "done")
    assert told.stages["report"]["state"] == "new"
    ended = memlm("run", chain, *files)
    assert ended.code == 0, ended.err
    assert {stage["state"] for stage in planned(memlm, chain, *files).stages.values()} == {"done"}
