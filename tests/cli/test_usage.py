"""What is wrong with a command line is said before anything is read or started."""

import io
import os
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Memlm


class Terminal(io.StringIO):
    """Standard input that a person types on."""

    def isatty(self) -> bool:
        return True


class Unread(io.StringIO):
    """Standard input that must not be read."""

    def __iter__(self) -> "Unread":
        raise AssertionError("standard input was read")

    def read(self, size: int | None = -1) -> str:
        raise AssertionError("standard input was read")


STAGES = ["train", "build-datastore", "build-index", "precompute-neighbors", "pack-batches", "evaluate"]


@pytest.mark.parametrize("command", STAGES)
def test_empty_standard_input_means_that_the_stage_before_failed(memlm: Memlm, command: str) -> None:
    ended = memlm(command, stdin="\n \n")
    assert ended.code == 4
    assert "memlm artifacts list" in ended.err
    assert ended.out == ""


def test_standard_input_that_is_no_text(memlm: Memlm) -> None:
    ended = memlm("train", stdin=io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8"))
    assert ended.code == 4


@pytest.mark.parametrize("content", ["a = " + "[" * 100_000, "a." * 20_000 + "b = 1"])
def test_a_settings_file_that_is_nested_too_deeply(memlm: Memlm, tmp_path: Path, content: str) -> None:
    (tmp_path / "deep.toml").write_text(content)
    ended = memlm("train", "--config", tmp_path / "deep.toml")
    assert (ended.code, "deep.toml" in ended.err) == (2, True)


def test_a_store_where_no_folder_can_be(memlm: Memlm, text: Path) -> None:
    ended = memlm("tokenize", "--train", text, "--store", "/proc/x")
    assert (ended.code, "/proc/x" in ended.err) == (2, True)


GRID = ",".join(
    f"{name}=" + "/".join(f"{number / unit:g}" for number in range(1, 301))
    for name, unit in (("external:k", 1), ("temperature", 1), ("lambda", 1000))
)
"""Of 300 numbers each."""


@pytest.mark.parametrize("command", STAGES)
def test_a_terminal_and_no_argument_is_bad_usage(memlm: Memlm, command: str) -> None:
    ended = memlm(command, stdin=Terminal())
    assert ended.code == 2


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["trian"], "Did you mean 'train'"),
        (["train", "--stpes", "3"], "--steps"),
        (["evaluate", "--lamda", "0.3"], "--lamda; did you mean --memory SOURCES:lambda=X? (see memlm"),
        (["evaluate", "--exclude", "slf"], "exclude: expected self, window:N or document; did you mean 'self'? (given"),
        (["train", "--kind"], "No such option: --kind (see memlm train --help)"),
        (["evaluate", "--plann"], "No such option: --plann (see memlm evaluate --help)"),
        (["train", "--dry-run"], "No such option: --dry-run; memlm plan train … says what would be made, how long"),
        (["train", "--set", "layers=abc"], "There is no setting 'layers'; did you mean 'model.layers'?"),
        (["train", "--steps", "many"], "steps: input should be a valid integer"),
        (["train", "--steps", "-3"], "steps: input should be greater than 0 (given: '-3')"),
        (["train", "--lr", "nan"], "optimizer.lr: input should be"),
        (["train", "--method", "spalms"], "There is no method 'spalms'; did you mean 'spalm'"),
        (["train", "--model", "tinny"], "did you mean 'tiny'"),
        (
            ["train", "--backbone", "nope"],
            "There is no backbone 'nope'; known: encoder-decoder, huggingface,",
        ),
        (["train", "--steps", "1", "--epochs", "1"], "give one of them"),
        (["train", "--set", "optimizer.lrr=1"], "did you mean 'optimizer.lr'"),
        (["train", "--backbone", "memformer", "--set", "model.attention.name=x"], "transformer, transformer-xl"),
        (["train", "--set", "model.dropuot=0.1"], "There is no setting 'model.dropuot'; did you mean 'model.dropout'?"),
        (["train", "--set", "droput=0.1"], "There is no setting 'droput'; did you mean 'model.dropout'?"),
        (["train", "--set", "steps"], "--set takes NAME=VALUE"),
        (["train", "--set", f"seed={2**64}"], "seed: input should be less than"),
        (["train", "--method", "trime", "--set", "memory.temperature=1e-30"], "memory.temperature: input should be"),
        (["train", "--set", f"model.width={2**62}"], "model.width: input should be less than"),
        (["train", "--batch-tokens", str(2**62)], "batch_tokens: input should be less than"),
        (["evaluate", "--memory", GRID], "a grid of 27,000,000 points (300 of temperature x 300 of"),
        (["train", "--set", "steps=" + "[" * 50_000], "is nested too deeply"),
        (["train", "--store", ""], "name a folder"),
        (["generate", "--prompt", "a\udcffb"], "--prompt is no UTF-8"),
        (["train", "--config", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["train", "--name", "0123456789ab"], "looks like an id"),
        (["train", "--name", "n" * 300], "at most 100 letters"),
        (["train", "--name", ""], "The name '' will not do"),
        (["train", "--model", ""], "There is no preset ''"),
        (["build-datastore", "--workers", "0"], "--workers must be 1 or more"),
        (["train", "--checkpoint-seconds", "nan"], "--checkpoint-seconds must be above 0"),
        (["build-datastore", "--fraction", "nan"], "fraction: "),
        (["build-datastore", "--dtype", "float8"], "'float16', 'float32'"),
        (["build-datastore", "--set", "contxt=3"], "did you mean 'context'"),
        (["build-index", "--index", "ivfpq"], "did you mean 'ivf-pq'"),
        (["build-index", "--recall", "all"], "recall: input should be a valid integer"),
        (["build-index", "--recall", "-1"], "recall: input should be greater than or equal to 0"),
        (["precompute-neighbors", "--exclude", f"window:{10**20}"], "exclude: "),
        (["precompute-neighbors", "--queries", ""], "queries.0: "),
        (["precompute-neighbors", "--queries", "train,,valid"], "queries.1: "),
        (["precompute-neighbors", "--k", "0"], "k: "),
        (["precompute-neighbors", "--k", "-1"], "k: "),
        (["pack-batches", "--k", "0"], "k: "),
        (["pack-batches", "--segment-length", "-8"], "segment_length: "),
        (["pack-batches", "--seed", "-1"], "seed: "),
        (["pack-batches", "--bm25", "bm25l"], "'lucene', 'okapi'"),
        (["evaluate", "--memory", "extrenal:k=3"], "external"),
        (["evaluate", "--score", "last"], "Invalid value for '--score': 'last' is not one of 'all', 'last-word'"),
        (["evaluate", "--score", ""], "'' is not one of 'all', 'last-word'"),
        (["evaluate", "--reset", "line"], "Invalid value for '--reset': 'line' is not one of 'none', 'document'"),
        (["evaluate", "--set", "score=lastword"], "score: input should be 'all' or 'last-word'"),
        (["evaluate", "--set", "reset=always"], "reset: input should be 'none' or 'document'"),
        (["run", "quikstart"], "did you mean 'quickstart'"),
        (["run", "knn-lm-wikitext2"], "needs --train FILE --valid FILE --test FILE"),
        (["presets", "tinny"], "did you mean 'tiny'"),
        (["presets", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["artifacts", "list", "modle"], "did you mean 'model'"),
    ],
)
def test_bad_usage_is_exit_2_before_standard_input_is_read(memlm: Memlm, arguments: list[str], part: str) -> None:
    ended = memlm(*arguments, stdin=Unread())
    assert ended.code == 2, ended.err
    assert part in " ".join(ended.err.split())
    assert "Traceback" not in ended.err
    assert ended.out == ""


def test_a_pipe_is_no_preset(memlm: Memlm, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    assert memlm("presets", tmp_path / "pipe.toml").code == 2


@pytest.mark.parametrize("words", [["list"], ["show", "model/mine"], ["rm", "tokens/a b"]])
def test_commands_of_artifacts_are_named_whole(memlm: Memlm, words: list[str]) -> None:
    ended = memlm(*words)
    assert ended.code == 2
    assert f"memlm artifacts {shlex.join(words)}" in ended.err


def test_an_artifact_that_is_not_there_is_exit_4(memlm: Memlm) -> None:
    ended = memlm("build-index", "datastore/0123456789ab")
    assert ended.code == 4
    assert "build-datastore" in ended.err
    assert memlm("build-index", stdin="datastore/0123456789ab\n").code == 4


@pytest.mark.parametrize(("command", "option"), [("evaluate", "--index"), ("evaluate", "--tokens")])
def test_an_empty_reference_is_not_the_same_as_none(memlm: Memlm, command: str, option: str, text: Path) -> None:
    tokens = memlm("tokenize", "--train", text, "--test", text).reference
    model = memlm("train", tokens, "--steps", "1", "--batch-tokens", "32", "--segment-length", "16").reference
    ended = memlm(command, model, option, "")
    assert ended.code == 4
    assert "''" in ended.err


@pytest.mark.parametrize("below", [".", "below/it"])
@pytest.mark.parametrize("command", [["artifacts", "list"], ["tokenize", "--train"]])
def test_a_store_that_is_a_file_is_refused(memlm: Memlm, command: list[str], below: str, text: Path) -> None:
    files = [text] if "--train" in command else []
    ended = memlm(*command, *files, "--store", text / below)
    assert ended.code == 2
    assert str(text) in ended.err
