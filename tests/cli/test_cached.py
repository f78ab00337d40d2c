"""A command whose artifact is there answers without loading what computes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm

HEAVY = {
    "numpy",
    "torch",
    "lightning_fabric",
    "faiss",
    "zarr",
    "scipy",
    "tokenizers",
    "transformers",
}
PROGRAM = f"""
import json, sys
from memlm_cli.app import main

for words in json.loads(sys.argv[1]):
    print("code:", main(words), flush=True)
    print("loaded:", *sorted({HEAVY!r} & set(sys.modules)), flush=True)
print("commands:", *(name for name in sys.modules if name.startswith("memlm_cli.commands.")))
"""
"""Answers one command after the other, and says what is loaded by then."""
RECIPE = """
[stages.tokens]
command = "tokenize"
with = {{ train = ["{text}"], valid = ["{text}"] }}

[stages.model]
command = "train"
from = "tokens"
settings = {{ model = {{ layers = 1, width = 8, heads = 2 }}, segment_length = 8, batch_tokens = 400 }}
"""


CHAIN = ("tokenize", "train", "build-datastore", "build-index", "precompute-neighbors", "evaluate")
NEEDED = {
    **dict.fromkeys(CHAIN[1:], ""),
    **dict.fromkeys(("tokenize", "run", "pack-batches"), " numpy"),
    "update-datastore": " numpy zarr",
}
"""What is loaded all the same, those that load less first. Of update-datastore to count the
documents that it is to forget; the others could do without."""
ON_CPU = ("--device", "cpu")
"""Where there is a GPU's driver torch is asked whether it can be used."""


def answers(*commands: list[object]) -> tuple[list[str], str]:
    """Lines of stdout, and stderr, of commands that one fresh process answers."""
    words = [
        sys.executable,
        "-c",
        PROGRAM,
        json.dumps([[str(word) for word in command] for command in commands]),
    ]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines(), ended.stderr


@pytest.mark.timeout(400)
def test_no_stage_loads_torch_to_find_that_it_is_done(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    more: dict[str, list[object]] = {
        "tokenize": ["--train", text, "--valid", text, "--tokenizer", "bpe", "--vocab-size", "300"],
        "train": [*SMALL, "--steps", "auto", "--batch-tokens", "400"],
        "evaluate": ["--exclude", "self", "--split", "valid"],
    }
    commands, made = dict[str, list[object]](), dict[str, str]()
    before: list[object] = []
    for command in CHAIN:
        commands[command] = [command, *before, *more.get(command, []), *ON_CPU]
        made[command] = memlm(*commands[command]).reference
        before = [made[command]]
    tokens, datastore = made["tokenize"], made["build-datastore"]
    added = memlm(
        "tokenize", "--train", text, "--tokenizer", tokens, "--documents", "line"
    ).reference
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(text=text))
    for words in (
        ["pack-batches", tokens, "--set", "segment-length=8"],
        ["update-datastore", datastore, "--add", added],
        ["run", recipe],
    ):
        commands[words[0]] = [*words, *ON_CPU]
        ended = memlm(*commands[words[0]])
        assert ended.code == 0, ended.err
        made[words[0]] = ended.out.strip()
    lines, told = answers(*(commands[command] for command in NEEDED))
    expected = [
        line
        for command, loaded in NEEDED.items()
        for line in (*made[command].splitlines(), "code: 0", f"loaded:{loaded}")
    ]
    assert lines[:-1] == expected
    assert told.count("cached") >= len(NEEDED)


def test_a_command_imports_no_other(memlm: Memlm, text: Path) -> None:
    tokens = ["tokenize", "--train", text, "--valid", text]
    assert memlm(*tokens).code == 0
    assert answers(tokens)[0][-1] == "commands: memlm_cli.commands.stage"
