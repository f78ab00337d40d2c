"""What shells ask for when Tab is pressed, by the protocol that `--show-completion` prints for
them.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Memlm
from tests.terminal import spawned

KINDS = {"tokens": "0" * 12, "model": "1" * 12, "index": "2" * 12, "report": "3" * 12}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders as those of artifacts: completion reads no more of them."""
    root = tmp_path / "store"
    for kind, id in KINDS.items():
        (root / kind / id).mkdir(parents=True)
        (root / kind / f".{id}-partial").mkdir()
        os.utime(root / kind / id, (int(id[0]), int(id[0])))  # the later, the larger its number
    (root / "names" / "model").mkdir(parents=True)
    (root / "names" / "model" / "best").write_text(KINDS["model"] + "\n")
    monkeypatch.setenv("MEMLM_STORE", str(root))
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def offered(memlm: Memlm, monkeypatch: pytest.MonkeyPatch, store: Path):  # type: ignore[no-untyped-def]
    """Runs what bash runs for the words typed so far; the last one is being typed."""

    def run(*words: str) -> list[str]:
        monkeypatch.setenv("_MEMLM_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("memlm", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv("MEMLM_STORE", str(store))
        ended = memlm()
        assert (ended.code, ended.err) == (0, "")
        return ended.out.split()

    return run


def test_artifacts_are_those_that_a_command_reads(offered) -> None:  # type: ignore[no-untyped-def]
    assert offered("build-datastore", "") == ["model/best", "model/111111111111"]
    assert offered("evaluate", "") == ["model/best", "index/222222222222", "model/111111111111"]
    assert offered("evaluate", "model/b") == ["model/best"]
    assert offered("evaluate", "model/x", "--baseline", "r") == ["report/333333333333"]
    assert offered("artifacts", "show", "t") == ["tokens/000000000000"]
    assert offered("compare", "report/333333333333", "rep") == ["report/333333333333"]


def test_the_store_may_be_named_before(offered, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "other" / "model" / ("a" * 12)).mkdir(parents=True)
    assert offered("build-datastore", "--store", "other", "") == ["model/aaaaaaaaaaaa"]
    assert offered("build-datastore", "--store", "none", "") == []


def test_names_of_parts(offered) -> None:  # type: ignore[no-untyped-def]
    assert offered("train", "--method", "trime-") == ["trime-long", "trime-ext"]
    assert offered("train", "--backbone", "l") == ["lstm"]
    assert offered("train", "--backbone", "inf") == ["infinity-former"]
    assert "huggingface" not in offered("train", "--backbone", "")
    assert offered("train", "--model", "tiny-t") == ["tiny-transformer-xl"]
    assert offered("run", "quick") == ["quickstart"]
    assert offered("evaluate", "--memory", "neu") == ["neural-cache"]
    assert offered("tokenize", "--tokenizer", "b") == ["byte", "bpe"]
    assert offered("artifacts", "list", "rep") == ["report"]
    assert offered("train", "--device", "c") == ["cpu", "cuda"]


def test_files_stand_beside_names(offered, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "quicker.toml").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.toml").write_text("")
    assert offered("run", "quick") == ["quickstart", "quicker.toml"]
    assert offered("run", "fol") == ["folder/"]
    assert offered("train", "--model", "folder/") == ["folder/mine.toml"]


def test_commands_and_options(offered) -> None:  # type: ignore[no-untyped-def]
    assert offered("build-d") == ["build-datastore"]
    assert offered("train", "--ste") == ["--steps"]


def test_descriptions_go_to_shells_that_show_them(
    memlm: Memlm, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_MEMLM_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "memlm build-datastore model/b")
    monkeypatch.setenv("MEMLM_STORE", str(store))
    assert memlm().out == "model/best\t111111111111\n"
    monkeypatch.setenv("_MEMLM_COMPLETE", "complete_zsh")
    assert memlm().out == """_arguments '*: :(("model/best":"111111111111"))'\n"""


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys\n"
        "from memlm_cli.app import main\n"
        "main([])\n"
        "heavy = {'torch', 'faiss', 'zarr', 'numpy', 'tokenizers'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    asked = {"_MEMLM_COMPLETE": "complete_bash", "COMP_WORDS": "memlm evaluate ", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **asked}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "model/best" in done.stdout


def test_an_odd_question_is_no_bug(memlm: Memlm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MEMLM_COMPLETE", "complete_tcsh")
    ended = memlm()
    assert (ended.code, "tcsh" in ended.err) == (1, True)


@pytest.fixture
def shell(tmp_path: Path, store: Path, memlm: Memlm) -> Callable[[str], tuple[str, dict[str, str]]]:
    """The script that is printed for a shell, and the environment in which that finds memlm and the
    store.
    """
    from typer._completion_shared import get_completion_script

    def prepared(name: str) -> tuple[str, dict[str, str]]:
        script = get_completion_script(
            prog_name="memlm", complete_var="_MEMLM_COMPLETE", shell=name
        )
        (tmp_path / "memlm").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memlm_cli "$@"\n')
        (tmp_path / "memlm").chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "MEMLM_STORE": str(store),
        }
        environment |= {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "dumb"}
        return script, environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    return prepared


def without(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell} here")


@without("bash")
def test_bash_completes(shell) -> None:  # type: ignore[no-untyped-def]
    """The whole way: the script that is printed, sourced by bash, calls memlm and fills in
    COMPREPLY.
    """
    script, environment = shell("bash")
    typed = "COMP_WORDS=(memlm evaluate model/b); COMP_CWORD=2"
    program = f"{script}\n{typed}; _memlm_completion memlm; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("model/best\n", "")


@without("fish")
def test_fish_completes(shell) -> None:  # type: ignore[no-untyped-def]
    """fish asks by itself for what it would offer, with what it would say of it."""
    script, environment = shell("fish")
    for typed, offered in (
        ("evaluate model/b", "model/best\t111111111111\n"),
        ("train --ste", "--steps\t"),
    ):
        program = f"{script}\ncomplete -C 'memlm {typed}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", program], capture_output=True, text=True, env=environment
        )
        assert done.stdout.startswith(offered), (done.stdout, done.stderr)


@without("zsh")
def test_zsh_completes(shell, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """On a terminal of its own: Tab behind what is typed puts the rest of the word there, and Enter
    runs the line.
    """
    script, environment = shell("zsh")
    (tmp_path / ".zshrc").write_text(
        f"autoload -U compinit\ncompinit -D -u\n{script}\nPS1='ready>'\n"
    )
    asked = spawned(["zsh", "-i"], environment)
    asked.until("ready>")
    asked.type("echo said; memlm evaluate model/b\t")
    asked.until("model/best")
    asked.end()


@without("zsh")
def test_the_script_of_zsh_is_whole(shell) -> None:  # type: ignore[no-untyped-def]
    script, environment = shell("zsh")
    done = subprocess.run(
        ["zsh", "-n"], input=script, capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_scripts_ask_memlm_by_the_name_that_it_answers_to(shell, name: str) -> None:  # type: ignore[no-untyped-def]
    script, _ = shell(name)
    assert f"_MEMLM_COMPLETE=complete_{name}" in script and "memlm" in script.splitlines()[-1]


def test_completion_is_installed_where_the_shell_finds_it(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: "fish")
    assert memlm("--install-completion").code == 0
    assert "memlm" in (tmp_path / ".config/fish/completions/memlm.fish").read_text()
