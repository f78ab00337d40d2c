"""What is wrong with a command line is said before anything is read or started."""

import io
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Memlm, Screen

STAGES = [
    "train",
    "build-datastore",
    "build-index",
    "precompute-neighbors",
    "pack-batches",
    "evaluate",
]


@pytest.mark.parametrize("command", STAGES)
def test_empty_standard_input_means_that_the_stage_before_failed(
    memlm: Memlm, command: str
) -> None:
    ended = memlm(command, stdin="\n \n")
    assert ended.code == 4
    assert "memlm artifacts list" in ended.err
    assert ended.out == ""


def test_standard_input_that_is_no_text(memlm: Memlm) -> None:
    ended = memlm("train", stdin=io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8"))
    assert ended.code == 4


@pytest.mark.parametrize("content", ["a = " + "[" * 100_000, "a." * 2_000 + "b = 1"])
def test_a_settings_file_that_is_nested_too_deeply(
    memlm: Memlm, tmp_path: Path, content: str
) -> None:
    (tmp_path / "deep.toml").write_text(content)
    ended = memlm("train", "--config", tmp_path / "deep.toml")
    assert (ended.code, "deep.toml" in ended.err) == (2, True)


def test_a_store_where_no_folder_can_be(memlm: Memlm, text: Path) -> None:
    ended = memlm("tokenize", "--train", text, "--store", "/proc/x")
    assert (ended.code, "/proc/x" in ended.err) == (2, True)


@pytest.mark.parametrize("command", STAGES)
def test_a_terminal_and_no_argument_is_bad_usage(memlm: Memlm, command: str) -> None:
    ended = memlm(command, stdin=Screen())
    assert ended.code == 2


def test_a_pipe_is_no_preset(memlm: Memlm, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    assert memlm("presets", tmp_path / "pipe.toml").code == 2


def test_an_artifact_that_is_not_there_is_exit_4(memlm: Memlm) -> None:
    ended = memlm("build-index", "datastore/0123456789ab")
    assert ended.code == 4
    assert "build-datastore" in ended.err
    assert memlm("build-index", stdin="datastore/0123456789ab\n").code == 4


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        (["--tokenizer", "mien"], "tokens/mine"),
        (["--tokenizer", "mine"], "tokens/mine"),
        (["--tokenizer", "tokens/mien"], "tokens/mine"),
        (["--tokenizer", "bpee"], "'bpe'"),
        (["--vocabulary", "9"], "--vocab-size"),
    ],
)
def test_a_tokenizer_that_is_not_there_is_like_one_that_is(
    memlm: Memlm, text: Path, options: list[str], meant: str
) -> None:
    assert memlm("tokenize", "--train", text, "--name", "mine").code == 0
    ended = memlm("tokenize", "--train", text, *options)
    assert ended.code in (2, 4) and f"did you mean {meant}" in ended.err.replace(
        "'tokens/mine'", "tokens/mine"
    )


def test_an_empty_reference_is_not_the_same_as_none(memlm: Memlm, text: Path) -> None:
    tokens = memlm("tokenize", "--train", text, "--test", text).reference
    model = memlm(
        "train", tokens, "--steps", "1", "--batch-tokens", "32", "--segment-length", "16"
    ).reference
    for option in ("--index", "--tokens"):
        ended = memlm("evaluate", model, option, "")
        assert (ended.code, "''" in ended.err) == (4, True)


@pytest.mark.parametrize("below", [".", "below/it"])
@pytest.mark.parametrize("command", [["artifacts", "list"], ["tokenize", "--train"]])
def test_a_store_that_is_a_file_is_refused(
    memlm: Memlm, command: list[str], below: str, text: Path
) -> None:
    files = [text] if "--train" in command else []
    ended = memlm(*command, *files, "--store", text / below)
    assert ended.code == 2
    assert str(text) in ended.err
