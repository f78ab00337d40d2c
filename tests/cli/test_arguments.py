"""Settings of a command: those that are typed win over those of a file; the store has an order."""

import io
from pathlib import Path

import pytest

from memlm_cli.arguments import given_settings
from memlm_cli.options import Common
from pipelines.options import options_of
from stages.training.config import TrainConfig
from tests.cli.conftest import Memlm

TRAIN = ["--segment-length", "8", "--batch-tokens", "32"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tokens(memlm: Memlm, text: Path) -> str:
    """Tokens of a small text."""
    splits = [word for split in ("train", "valid", "test") for word in (f"--{split}", text)]
    return memlm("tokenize", *splits, "--tokenizer", "word").reference


def test_settings_of_the_file_are_below_those_that_are_typed(folder: Path) -> None:
    (folder / "c.toml").write_text("steps = 5\nseed = 3\n[optimizer]\nlr = 0.5\n")
    common = Common(config=Path("c.toml"), set=["model.backbone=transformer"])
    given = given_settings(common, {"steps": 1, "lr": 0.1}, options_of(TrainConfig))
    assert given == {
        "steps": 1,
        "seed": 3,
        "optimizer": {"lr": 0.1},
        "model": {"backbone": "transformer"},
    }


def test_steps_that_are_typed_replace_epochs_of_the_file(memlm: Memlm, tokens: str) -> None:
    typed = memlm("train", tokens, *TRAIN, "--steps", "3").reference
    Path("epochs.toml").write_text("epochs = 0.2\n")
    below = memlm("train", tokens, *TRAIN, "--config", "epochs.toml", "--steps", "3")
    assert below.reference == typed


def test_two_lengths_that_are_typed_are_refused(memlm: Memlm, tokens: str) -> None:
    for typed in (["--steps", "300", "--set", "epochs=2"], ["--steps", "300", "--epochs", "2"]):
        ended = memlm("train", tokens, *typed)
        assert ended.code == 2 and "--steps" in ended.err and "--epochs" in ended.err
    ended = memlm(
        "run", "quickstart", "--set", "model.steps=3", "--set", "model.epochs=2", "--dry-run"
    )
    assert ended.code == 2


def test_the_store_is_that_of_the_option_then_the_environment(
    memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLM_STORE", "from-environment")
    assert memlm("artifacts", "list", "--store", "from-option").err.split()[2] == "from-option"
    assert memlm("artifacts", "list").err.split()[2] == "from-environment"
    monkeypatch.setenv("MEMLM_STORE", "")
    assert memlm("artifacts", "list").err.split()[2] == "memlm-store"


def test_a_file_of_defaults_in_the_working_folder_is_not_read(
    memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLM_STORE", "")
    Path("memlm.toml").write_text('store = "elsewhere"\n[artifacts.gc]\nunnamed = true\n')
    assert memlm("artifacts", "list").err.split()[2] == "memlm-store"


def test_digits_may_be_grouped_as_in_toml(memlm: Memlm, tokens: str) -> None:
    """`1_000` is the number that it is in a settings file, so both have one id."""
    Path("grouped.toml").write_text("segment_length = 8\nbatch_tokens = 3_2\n")
    typed = memlm("train", tokens, "--segment-length", "8", "--batch-tokens", "3_2", "--steps", "1")
    by_file = memlm("train", tokens, "--config", "grouped.toml", "--steps", "1")
    assert typed.reference == memlm("train", tokens, *TRAIN, "--steps", "1").reference
    assert by_file.reference == typed.reference


def test_a_command_says_what_it_reads_where_nothing_comes(memlm: Memlm) -> None:
    ended = memlm("import-model", "FOLDER", stdin=io.StringIO(""))
    assert ended.code == 4
    assert "tokens (memlm import-model CHECKPOINT TOKENS;" in ended.err
