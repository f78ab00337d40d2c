"""A package that is not installed is told with what installs it, and nothing is left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from memlm_cli.exit_codes import failure_of
from memlm_cli.packages import installation
from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm

WITHOUT_FAISS = (
    "import sys; sys.modules['faiss'] = None; from memlm_cli.app import main; sys.exit(main())"
)
REQUIREMENTS = [
    "numpy>=1.26",
    "matplotlib>=3.9",
    "ray[default]>=2; extra == 'ray'",
    'faiss-cpu>=1.10; extra == "cpu"',
    'faiss-gpu>=1.10; extra == "gpu"',
]


def test_without_faiss_the_extras_that_bring_it_are_named(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    tokens = memlm("tokenize", "--train", text, "--test", text).reference
    datastore = memlm("build-datastore", memlm("train", tokens, *SMALL).reference).reference
    command = [sys.executable, "-c", WITHOUT_FAISS, "build-index", datastore]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install" in done.stderr
    assert "extra cpu" in done.stderr and "extra gpu" in done.stderr
    assert not list((tmp_path / "store" / "index").glob(".*-partial"))


@pytest.mark.parametrize(
    ("module", "commands"),
    [
        (
            "faiss",
            "pip install 'faiss-cpu>=1.10' (memlm's extra cpu), or pip install 'faiss-gpu>=1.10' (memlm's extra gpu)",
        ),
        ("ray", "pip install 'ray[default]>=2' (memlm's extra ray)"),
        ("matplotlib", "pip install 'matplotlib>=3.9'"),
        ("num", "pip install num"),
        ("elsewhere", "pip install elsewhere"),
    ],
)
def test_a_module_is_found_among_the_requirements(module: str, commands: str) -> None:
    assert installation(module, REQUIREMENTS) == commands


def test_a_module_of_memlm_itself_that_is_missing_is_a_bug() -> None:
    assert failure_of(ModuleNotFoundError(name="stages.none")).code == 1
    assert failure_of(ModuleNotFoundError(name="ray.none")).code == 2
