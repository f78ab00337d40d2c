"""A command whose artifact is there answers without loading what computes."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Memlm
from tests.cli.test_artifacts import SMALL

HEAVY = {"numpy", "torch", "lightning_fabric", "faiss", "zarr", "scipy", "tokenizers", "transformers"}
PROGRAM = (
    "import sys\n"
    "from memlm_cli.app import main\n"
    "code = main(sys.argv[1:])\n"
    f"print('loaded:', *sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)\n"
    "sys.exit(code)\n"
)
RECIPE = """
[stages.tokens]
command = "tokenize"
with = {{ train = ["{text}"], valid = ["{text}"] }}

[stages.model]
command = "train"
from = "tokens"
settings = {{ model = {{ layers = 1, width = 8, heads = 2 }}, segment_length = 8, batch_tokens = 16 }}
"""


NEEDED = {
    **dict.fromkeys(("tokenize", "run", "pack-batches"), " numpy"),
    "update-datastore": " numpy zarr",
}
"""What is loaded all the same: of update-datastore to count the documents that it is to forget; the others could do
without."""
ON_CPU = ("--device", "cpu")
"""Where there is a GPU's driver torch is asked whether it can be used."""


def answered_again(arguments: list[object]) -> tuple[str, str]:
    """Stdout and stderr of a command in a process of its own."""
    words = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "MEMLM_PARTS"}  # those of tests compute
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def test_no_stage_loads_torch_to_find_that_it_is_done(memlm: Memlm, text: Path) -> None:
    more: dict[str, list[object]] = {
        "tokenize": ["--train", text, "--valid", text, "--tokenizer", "bpe", "--vocab-size", "300"],
        "train": [*SMALL, "--steps", "auto"],
        "evaluate": ["--exclude", "self", "--split", "valid"],
    }
    made = ""
    chain = ("tokenize", "train", "build-datastore", "build-index", "precompute-neighbors", "evaluate")
    for command in chain:
        arguments = [command, *([made] if made else []), *more.get(command, []), *ON_CPU]
        made = memlm(*arguments).reference
        out, err = answered_again(arguments)
        assert out.strip() == made
        assert "cached" in err and err.endswith(f"loaded:{NEEDED.get(command, '')}\n"), command


def test_nor_do_stages_beside_the_chain(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    tokens = memlm("tokenize", "--train", text, "--valid", text).reference
    added = memlm("tokenize", "--train", text, "--tokenizer", tokens, "--documents", "line").reference
    datastore = memlm("build-datastore", memlm("train", tokens, *SMALL).reference).reference
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(text=text))
    commands: list[list[object]] = [
        ["pack-batches", tokens, "--set", "segment-length=8"],
        ["update-datastore", datastore, "--add", added],
        ["run", recipe],
    ]
    for command in commands:
        arguments = [*command, *ON_CPU]
        made = memlm(*arguments)
        assert made.code == 0, made.err
        out, err = answered_again(arguments)
        assert out == made.out
        assert "cached" in err and err.endswith(f"loaded:{NEEDED.get(str(command[0]), '')}\n"), command[0]


def test_a_command_imports_no_other(memlm: Memlm, text: Path) -> None:
    program = PROGRAM.replace(repr(HEAVY), "{name for name in sys.modules if name.startswith('memlm_cli.commands.')}")
    tokens = ["tokenize", "--train", str(text), "--valid", str(text)]
    assert memlm(*tokens).code == 0
    words = [sys.executable, "-c", program, *tokens]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert ended.stderr.endswith("loaded: memlm_cli.commands.stage\n"), ended.stderr
