"""`memlm train`: options that would do nothing are refused before anything is read."""

from pathlib import Path

import pytest

from tests.cli.conftest import Memlm


@pytest.mark.parametrize(
    "arguments",
    [
        ["--backbone", "transformer-xl", "--mem-length", "0"],
        ["--method", "spalm", "--mem-length", "8"],
        ["--model", "wikitext2-8x128-xl", "--init-from", "model/x", "--mem-length", "8"],
        ["--init-from", "model/x", "--set", "model.gate=scalar", "--backbone", "lstm"],
    ],
)
def test_settings_that_it_would_have_are_not(memlm: Memlm, arguments: list[str]) -> None:
    assert memlm("train", "tokens/none", *arguments).code == 4


def test_what_the_model_to_begin_with_does_not_have_is_refused(memlm: Memlm, text: Path) -> None:
    tokens = memlm("tokenize", "--train", text).reference
    model = memlm("train", tokens, "--steps", 1).reference
    for named in (["--backbone", "lstm"], ["--model", "tiny-lstm"]):
        ended = memlm("train", tokens, "--init-from", model, *named, "--steps", 1)
        assert ended.code == 2, ended.err
        assert "transformer" in ended.err and "'lstm'" in ended.err
    assert (
        memlm("train", tokens, "--init-from", model, "--backbone", "transformer", "--steps", 1).code
        == 0
    )
    for idle, named in (
        (["model.width=8"], "model.width"),
        (["model.gate=scalar", "model.dropout=0"], "model.dropout"),
    ):
        ended = memlm(
            "train",
            tokens,
            "--init-from",
            model,
            *(part for one in idle for part in ("--set", one)),
        )
        words = f"leave {named} out. What may be another: --segment-length."
        assert (ended.code, words in " ".join(ended.err.split())) == (2, True)
    for method in ("lm", "spalm"):
        ended = memlm("train", tokens, "--init-from", model, "--method", method, "--mem-length", 8)
        assert (ended.code, "--mem-length" in ended.err) == (2, True)


def test_unknown_tokens_of_valid_are_told_once_beside_its_perplexity(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "valid.txt").write_text("the cat sees the heron\n" * 4)
    settings = [
        "--steps",
        2,
        "--set",
        "valid_every=1",
        "--segment-length",
        16,
        "--batch-tokens",
        32,
    ]
    line = "16.7% of the tokens of valid are <unk>, which"
    for tokenizer, told in (("word", 1), ("char", 0)):
        splits = ["--train", text, "--valid", tmp_path / "valid.txt"]
        tokens = memlm("tokenize", *splits, "--tokenizer", tokenizer).reference
        assert memlm("train", tokens, *settings).err.count(line) == told


def test_an_interrupted_run_says_that_it_goes_on(
    memlm: Memlm, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    tokens = memlm("tokenize", "--train", text).reference
    monkeypatch.setattr("stages.training.work.TrainWork.run", interrupted)
    ended = memlm("train", tokens, "--steps", 1)
    assert (ended.code, "interrupted; what is" in ended.err) == (130, True)


def test_what_compiling_needs_is_said_before_training_begins(
    memlm: Memlm, text: Path, monkeypatch
) -> None:
    tokens = memlm("tokenize", "--train", text).reference
    monkeypatch.setenv("CXX", "/nowhere/c++")
    ended = memlm("train", tokens, "--compile", "--steps", 1)
    assert ended.code == 2
    assert ended.err.startswith("memlm train: --compile ") and "/nowhere/c++" in ended.err
    without = memlm("train", tokens, "--set", "compile=false", "--steps", 1)
    assert without.code == 0 and without.reference == memlm("train", tokens, "--steps", 1).reference


def test_a_model_with_memory_names_its_twin(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    tokens = memlm(
        "tokenize", "--train", text, "--valid", text, "--test", text, "--tokenizer", "char"
    ).reference
    small = (
        "--steps",
        "2",
        "--segment-length",
        "16",
        "--set",
        "model.width=16",
        "--set",
        "model.layers=1",
    )
    trime = memlm("train", tokens, "--method", "trime", *small).reference
    said = memlm("evaluate", trime, "--memory", "none", "--verbose").err
    (line,) = [one for one in said.splitlines() if ": memlm train " in one]
    command = line.partition(": memlm ")[2].partition(". Name ")[0].split()
    twin = memlm(*command).reference
    assert twin in memlm("evaluate", trime, "--memory", "trime", "--verbose").err
