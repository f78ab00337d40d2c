"""`memlm.toml`: what stands there is as if it were typed, and loses against all that is typed."""

from pathlib import Path

import pytest

from memlm_cli.arguments import given_settings
from memlm_cli.options import Common
from pipelines.options import options_of
from stages.training.config import TrainConfig
from tests.cli.conftest import Memlm


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def says(text: str) -> None:
    Path("memlm.toml").write_text(text)


@pytest.fixture
def tokens(memlm: Memlm, text: Path) -> str:
    """Tokens of a small text."""
    splits = [word for split in ("train", "valid", "test") for word in (f"--{split}", text)]
    return memlm("tokenize", *splits, "--tokenizer", "word").reference


TRAIN = ["--segment-length", "8", "--batch-tokens", "32"]


def test_the_id_is_that_of_the_same_options_typed(memlm: Memlm, tokens: str) -> None:
    typed = memlm(
        "train", tokens, *TRAIN, "--steps", "2", "--lr", "1e-3", "--set", "model.dropout=0.1"
    )
    says(
        '[train]\nsegment-length = 8\nbatch_tokens = 32\nsteps = 2\nlr = 0.001\nset = ["model.dropout=0.1"]\n'
    )
    ended = memlm("train", tokens)
    assert ended.reference == typed.reference
    assert "train: cached" in ended.err
    said = "train: from memlm.toml: --segment-length 8 --batch-tokens 32 --steps 2 --lr 0.001 --set model.dropout=0.1"
    assert said in ended.err


@pytest.mark.parametrize(
    "typed", [["--steps", "3"], ["--set", "steps=3"], ["--config", "own.toml"]]
)
def test_what_is_typed_wins_whichever_way(memlm: Memlm, tokens: str, typed: list[str]) -> None:
    wanted = memlm("train", tokens, *TRAIN, "--steps", "3").reference
    Path("own.toml").write_text("steps = 3\n")
    says("[train]\nsteps = 2\n")
    assert memlm("train", tokens, *TRAIN, *typed).reference == wanted


def test_an_option_takes_the_place_of_a_default_that_says_the_same_thing(
    memlm: Memlm, tokens: str
) -> None:
    wanted = memlm("train", tokens, *TRAIN, "--epochs", "0.2").reference
    says("[train]\nsteps = 2\n")
    assert memlm("train", tokens, *TRAIN, "--epochs", "0.2").reference == wanted


def test_settings_are_put_together_in_the_order_that_the_guide_tells(folder: Path) -> None:
    (folder / "c.toml").write_text("steps = 5\n[optimizer]\nlr = 0.5\n")
    typed = {"steps": 1, "lr": 0.1, "backbone": "lstm", "seed": 7}
    weak = frozenset({"steps", "lr", "backbone"})
    common = Common(config=Path("c.toml"), set=["model.backbone=transformer"], by_default=weak)
    given = given_settings(common, typed, options_of(TrainConfig))
    assert given == {
        "steps": 5,
        "optimizer": {"lr": 0.5},
        "model": {"backbone": "transformer"},
        "seed": 7,
    }


def test_the_store_is_that_of_the_option_then_the_environment_then_the_file(
    memlm: Memlm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says('store = "from-file"\n')
    monkeypatch.setenv("MEMLM_STORE", "from-environment")
    assert memlm("artifacts", "list", "--store", "from-option").err.split()[2] == "from-option"
    assert memlm("artifacts", "list").err.split()[2] == "from-environment"
    monkeypatch.setenv("MEMLM_STORE", "")
    assert memlm("artifacts", "list").err.split()[2] == "from-file"
    Path("memlm.toml").unlink()
    assert memlm("artifacts", "list").err.split()[2] == "memlm-store"


def test_only_the_working_folder_is_looked_into(
    memlm: Memlm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says("nonsense\n")
    (folder / "below").mkdir()
    monkeypatch.chdir("below")
    assert memlm("artifacts", "list").code == 0


def test_groups_of_commands_and_switches(memlm: Memlm) -> None:
    says("[artifacts.list]\njson = true\n")
    assert memlm("artifacts", "list").out == "[]\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("store = \n", "TOML"),
        ("\nstored = 'x'\n", "'store'"),
        ("steps = 5\n", "'steps'"),
        ("[trian]\nsteps = 5\n", "'train'"),
        ("[train]\n# more\nstep = 5\n", "'steps'"),
        ("train = 5\n", "[train]"),
        ("[train]\nlr = 'fast'\n", "train.lr: "),
        ("workers = 2.5\n", "workers: "),
        ("device = 'tpu'\n", "device: "),
        ("store = ''\n", "store: "),
        ("no-wait = 1\n", "no-wait: "),
        ("[train]\nsteps = true\n", "train.steps: "),
        ("[train]\nlr = [\n  1,\n  2,\n]\n", "train.lr: "),
        ("[evaluate]\nmemory = [['knn-lm']]\n", "evaluate.memory: "),
        ("[artifacts]\nlist = 1\n", "[artifacts.list]"),
    ],
)
def test_bad_content_is_refused_with_its_key_by_every_command(
    memlm: Memlm, text: str, told: str
) -> None:
    says(text)
    ended = memlm("artifacts", "list")
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err


def test_a_file_that_is_no_text_is_refused(memlm: Memlm) -> None:
    Path("memlm.toml").write_bytes(b"\xff")
    assert memlm("artifacts", "list").code == 2
    assert memlm("artifacts", "list", "--help").code == 0


def test_a_value_that_the_stage_refuses_is_said_to_come_from_the_file(
    memlm: Memlm, tokens: str
) -> None:
    says("[train]\nsteps = 'many'\n")
    ended = memlm("train", tokens)
    assert ended.code == 2
    assert "memlm.toml: --steps many" in ended.err


@pytest.mark.parametrize("file", ["epochs = 0.2", 'set = ["epochs=0.2"]'])
@pytest.mark.parametrize(
    "typed", [["--steps", "3"], ["--set", "steps=3"], ["--config", "own.toml"]]
)
def test_steps_that_are_typed_win_over_epochs_of_the_file(
    memlm: Memlm, tokens: str, file: str, typed: list[str]
) -> None:
    wanted = memlm("train", tokens, *TRAIN, "--steps", "3").reference
    Path("own.toml").write_text("steps = 3\n")
    says(f"[train]\n{file}\n")
    assert memlm("train", tokens, *TRAIN, *typed).reference == wanted


def test_two_lengths_that_are_typed_are_refused(memlm: Memlm, tokens: str) -> None:
    for typed in (["--steps", "300", "--set", "epochs=2"], ["--steps", "300", "--epochs", "2"]):
        ended = memlm("train", tokens, *typed)
        assert ended.code == 2 and "--steps" in ended.err and "--epochs" in ended.err
    ended = memlm(
        "run", "quickstart", "--set", "model.steps=3", "--set", "model.epochs=2", "--dry-run"
    )
    assert ended.code == 2


def test_a_typed_set_adds_to_that_of_the_file(memlm: Memlm, tokens: str) -> None:
    wanted = memlm(
        "train", tokens, *TRAIN, "--steps", "2", "--set", "seed=5", "--set", "model.dropout=0.2"
    ).reference
    says('[train]\nset = ["seed=5", "model.dropout=0.1"]\n')
    ended = memlm("train", tokens, *TRAIN, "--steps", "2", "--set", "model.dropout=0.2")
    assert ended.reference == wanted
    for setting in ("seed=5", "model.dropout=0.1"):
        assert f"--set {setting}" in ended.err


def test_only_what_can_be_typed_or_written_is_reminded_of(memlm: Memlm, tokens: str) -> None:
    says("no-wait = false\n[train]\njson = true\n")
    ended = memlm("train", tokens, *TRAIN, "--steps", "2")
    assert "no-wait = false\n" in ended.err
    says("[train]\nplan = true\n")
    assert memlm("train", tokens).code == 2
