"""Help is complete, and loads nothing that computes."""

import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from memlm_cli.options import ON_CPU
from pipelines.catalogue import stage_of
from stages.methods import METHODS
from stages.models import NAMED, trainable_backbones
from stages.training.presets import preset_names
from tests.cli.conftest import Memlm

COMMANDS = [
    "try",
    "tokenize",
    "train",
    "build-datastore",
    "update-datastore",
    "build-index",
    "precompute-neighbors",
    "pack-batches",
    "evaluate",
    "report",
    "compare",
    "inspect",
    "generate",
    "translate",
    "export",
    "run",
    "artifacts",
    "presets",
    "recipes",
    "doctor",
    "plan",
]
STAGES = [*COMMANDS[:8], "run"]
EVERYWHERE = [
    "--store",
    "--name",
    "--device",
    "--workers",
    "--precision",
    "--config",
    "--set",
    "--checkpoint-seconds",
    "--no-wait",
    "--json",
]


def test_commands_stand_in_the_order_of_their_use(memlm: Memlm) -> None:
    ended = memlm("--help")
    assert ended.code == 0
    # The pipe can be copied as it stands: no line of it is broken within a command.
    assert "memlm train | memlm build-datastore | memlm build-index | memlm evaluate " in ended.out
    listed = ended.out[ended.out.index("Commands") :]
    places = [listed.index(f" {command} ") for command in COMMANDS[:15]]
    assert places == sorted(places)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(memlm: Memlm, command: str) -> None:
    ended = memlm(command, "--help")
    assert ended.code == 0
    assert command in ended.out
    assert memlm(command, "-h") == ended
    if command in STAGES:
        assert all(option in ended.out for option in EVERYWHERE)


def test_help_of_train_names_methods_backbones_and_presets(memlm: Memlm) -> None:
    words = set(re.findall(r"[\w+-]+", memlm("train", "--help").out))
    assert words >= {*METHODS.names(), *trainable_backbones(), *NAMED, *preset_names()}


def test_help_names_the_commands_that_run_no_model() -> None:
    *without, last = (
        name for name in COMMANDS[1:9] if "precision" not in stage_of(name).Config.model_fields
    )
    assert f"{', '.join(without)} and {last}" == ON_CPU


HEAVY = {"torch", "faiss", "zarr", "numpy", "tokenizers", "tqdm", "jinja2", "matplotlib"}


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from memlm_cli.app import main\n"
        f"for command in {COMMANDS}: main([command, '--help'])\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["train", "evaluate", "tokenize", "build-index"])
def test_help_builds_no_validator(command: str) -> None:
    program = (
        "import sys\n"
        "from memlm_cli.app import main\n"
        f"main([{command!r}, '--help'])\n"
        "from stages.config import Settings\n"
        "def below(kind): return [kind, *(inner for one in kind.__subclasses__() for inner in below(one))]\n"
        "built = [one.__name__ for one in below(Settings) if one.__pydantic_complete__]\n"
        "assert len(below(Settings)) > 3\n"
        "assert not {'stages.artifacts.store', 'stages.artifacts.stage', 'stages.lineage'} & set(sys.modules)\n"
        "sys.exit(f'built: {built}' if built else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "searches"), [(["train", "--help"], 0), (["train", "--x"], 0), (["presets"], 1)]
)
def test_a_process_ends_with_one_search_for_garbage_if_a_command_ran(
    words: list[str], searches: int
) -> None:
    program = (
        "import atexit, gc, sys\n"
        "from memlm_cli.app import main\n"
        "seen = []\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0, seen.count(2)))\n"
        f"sys.argv = ['memlm', *{words!r}]\n"
        "main()\n"
        "gc.callbacks.append(lambda phase, figures: seen.append(figures['generation']) if phase == 'start' else None)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"True {searches}"


def test_the_list_of_commands_imports_no_settings() -> None:
    program = (
        "import sys\n"
        "from memlm_cli.app import main\n"
        "main(['--help'])\n"
        "sys.exit('stages.config' in sys.modules or 'memlm_cli.commands.stage' in sys.modules)\n"
    )
    asked = {"_MEMLM_COMPLETE": "complete_bash", "COMP_WORDS": "memlm tr", "COMP_CWORD": "1"}
    for more, word in (({}, "evaluate-tasks"), (asked, "train")):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | more
        )
        assert (done.returncode, word in done.stdout) == (0, True), done.stderr


def test_a_verb_imports_no_torch_before_it_runs() -> None:
    modules = ["tokenize", "train", "datastore", "index", "neighbors", "pack", "evaluate"]
    imports = "".join(
        f"import stages.{one}; print({one!r}, {{'torch', 'faiss'}} & set(sys.modules))\n"
        for one in modules
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{imports}"], capture_output=True, text=True
    )
    assert done.stdout == "".join(f"{one} set()\n" for one in modules), done.stderr


@pytest.mark.parametrize("command", ["list", "show", "verify", "graph", "rm", "gc"])
def test_so_do_those_of_the_store(memlm: Memlm, command: str) -> None:
    ended = memlm("artifacts", command, "-h")
    assert (ended.code, f"memlm artifacts {command}" in ended.out) == (0, True)


def test_version(memlm: Memlm) -> None:
    ended = memlm("--version")
    assert ended.code == 0
    assert ended.out.startswith("memlm")


def test_help_whose_reader_has_gone_away_is_no_error() -> None:
    program = (
        "import sys; from memlm_cli.app import main; sys.stdin.read(); sys.exit(main(['--help']))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        process.stdout.close()
        process.stdin.close()
        assert (process.wait(), process.stderr.read()) == (0, b"")


def test_any_answer_whose_reader_has_gone_away_is_no_error() -> None:
    program = (
        "import sys; from memlm_cli.exit_codes import guarded; sys.stdin.read();"
        "sys.exit(guarded(lambda: [print('x' * 9999, flush=True) for _ in range(99)], 'memlm'))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        process.stdout.close()
        process.stdin.close()
        assert (process.wait(), process.stderr.read()) == (0, b"")


@pytest.mark.parametrize("command", ["try", "report", "compare"])
def test_sentences_are_wrapped_by_the_terminal_alone(
    memlm: Memlm, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """No line ends early: the next word would not have fitted."""
    monkeypatch.setenv("COLUMNS", "60")
    above = memlm(command, "--help").out.partition("╭")[0]
    assert "...}" not in above and "...]" not in above
    for paragraph in above.split("\n" + " " * 60 + "\n"):
        lines = [line.strip() for line in paragraph.strip().split("\n")]
        for line, after in pairwise(lines):
            assert len(line) + 1 + len(after.split()[0]) > 58, line
