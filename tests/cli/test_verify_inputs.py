"""Bits that rot below the file system, under stamps that agree: found by whoever verifies inputs, by nobody else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import write_stamps
from stages.artifacts.store import Store
from tests.cli.conftest import Memlm
from tests.cli.test_artifacts import SMALL
from tests.stages.small_text import story

WEIGHTS, SCORES = "model.safetensors", "scores.zarr/logp_lm/c/0"
ANSWERS = {
    "generate": (["{model}", "--prompt", "the cat", "--max-tokens", "2"], WEIGHTS),
    "inspect": (["{model}", "--position", "3", "--length", "2"], WEIGHTS),
    "report": (["{report}", "--output", "page.html"], SCORES),
    "compare": (["{report}", "{cache}", "--samples", "5"], SCORES),
    "compare of seeds": (["{report}"] * 3, SCORES),
}
"""Commands that make no artifact, and a file of what they read that may be wrong without a sign."""
STAGES = {
    "evaluate": (["{model}"], WEIGHTS),
    "build-datastore": (["{model}", "--split", "valid"], WEIGHTS),
}


@pytest.fixture
def made(memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """References of a model, and of reports with token scores."""
    monkeypatch.chdir(tmp_path)
    for seed, split in enumerate(("train", "valid", "test")):
        Path(f"{split}.txt").write_text(story(9, seed))
    tokens = memlm("tokenize", "--train", "train.txt", "--valid", "valid.txt", "--test", "test.txt").reference
    model = memlm("train", tokens, *SMALL).reference
    cache = memlm("evaluate", model, "--memory", "long:size=9,theta=0.5,lambda=0.3", "--save-token-scores").reference
    return {"model": model, "report": memlm("evaluate", model, "--save-token-scores").reference, "cache": cache}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The store that `memlm` works in."""
    return Store(tmp_path / "store")


def rot(artifact: Artifact, file: str) -> None:
    """Let a bit flip where neither size nor times nor inode tell."""
    path = artifact.path / file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    write_stamps(artifact.store.root / ".stamps" / f"{artifact.reference}.json", artifact.path, artifact.manifest.files)


def by_option(store: Store) -> list[str]:
    return ["--verify-inputs"]


def by_store(store: Store) -> list[str]:
    (store.root / "store.toml").write_text("verify_inputs = true\n")
    return []


@pytest.mark.parametrize("asked", [by_option, by_store])
def test_whoever_reads_verifies_where_that_is_asked_for(
    memlm: Memlm, store: Store, made: dict[str, str], asked: Callable[[Store], list[str]]
) -> None:
    own = {WEIGHTS: "model", SCORES: "report"}
    for file, role in own.items():
        rot(store.get(made[role]), file)
    commands = {
        name: [name.split()[0], *(word.format(**made) for word in words)] for name, (words, _) in ANSWERS.items()
    }
    trusting = {name: memlm(*command).code for name, command in commands.items()}
    assert trusting == dict.fromkeys(ANSWERS, 0)
    commands |= {name: [name, *(word.format(**made) for word in words)] for name, (words, _) in STAGES.items()}
    options = asked(store)
    for name, command in commands.items():
        file = (ANSWERS | STAGES)[name][1]
        ended = memlm(*command, *options)
        assert (name, ended.code) == (name, 4)
        assert made[own[file]] in ended.err and file in ended.err


def test_a_page_shows_nothing_of_a_damaged_model_where_inputs_are_verified(
    memlm: Memlm, store: Store, made: dict[str, str]
) -> None:
    rot(store.get(made["model"]), "training.jsonl")
    assert memlm("report", made["report"], "--output", "page.html").code == 0
    ended = memlm("report", made["report"], "--output", "page.html", "--verify-inputs")
    assert ended.code == 4
    assert "training.jsonl" in ended.err
