"""A recipe on a pretrained model."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Memlm
from tests.stages.pretrained.tiny import saved, saved_encoder, saved_gguf

pytest.importorskip("transformers")


def test_the_recipe_reads_a_folder_and_is_done_once(memlm: Memlm, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "pretrained", "llama", bos=True)
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", text)]
    command = (
        "run",
        "knn-lm-pretrained",
        *files,
        "--pretrained",
        "pretrained",
        "--set",
        "report.exclude=self",
    )
    planned = memlm(*command, "--dry-run", "--json")
    assert [step["done"] for step in json.loads(planned.out)] == [False] * 5, planned.err
    report = memlm(*command)
    assert report.reference.startswith("report/")
    figures = json.loads((tmp_path / "store" / report.reference / "metrics.json").read_text())
    assert [row["row"] for row in figures["rows"]] == ["plain", "knn-lm"]
    assert all(step["done"] for step in json.loads(memlm(*command, "--dry-run", "--json").out))


def test_the_model_that_a_recipe_needs_is_asked_for(memlm: Memlm, text):
    ended = memlm("run", "knn-lm-pretrained", "--train", text, "--valid", text, "--test", text)
    assert ended.code == 2 and "--pretrained" in ended.err
    ended = memlm("run", "quickstart", "--pretrained", "x.gguf")
    assert ended.code == 2 and "'pretrained'" in ended.err


def test_a_gguf_file_is_model_and_tokenizer_in_one(memlm: Memlm, text, tmp_path):
    pytest.importorskip("gguf")
    saved_gguf(file := tmp_path / "tiny.gguf", bos=True)
    splits = [word for split in ("train", "valid", "test") for word in (f"--{split}", text)]
    tokens = memlm("tokenize", "--tokenizer", file, *splits).reference
    model = memlm("import-model", file, tokens).reference
    assert memlm("evaluate", model).reference.startswith("report/")
    assert memlm("export", model, "--output", tmp_path / "out").code == 0
    again = memlm("import-model", tmp_path / "out", tokens)
    assert again.code == 0, again.err


def test_an_encoder_makes_keys_for_another_model_and_scores_nothing(
    memlm: Memlm, text, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    saved_encoder(tmp_path / "bert")
    files = [word for split in ("train", "valid", "test") for word in (f"--{split}", text)]
    tokens = memlm("tokenize", "--tokenizer", "bert", *files).reference
    encoder = memlm("import-model", "bert", tokens, "--segment-length", 4).reference
    made = memlm("build-datastore", encoder)
    assert " 4 tokens" in made.err
    index = memlm("build-index", made.reference).reference
    neighbors = memlm("precompute-neighbors", index, "--k", 2).reference
    small = ("--set", "steps=2", "--set", "batch_tokens=64", "--segment-length", 16)
    model = memlm("train", tokens, *small).reference
    row = ("--memory", "external:k=2,lambda=0.5,temperature=1", "--exclude", "self")
    assert memlm("evaluate", model, "--neighbors", neighbors, *row).reference.startswith("report/")
    assert (
        memlm(
            "generate", model, "--index", index, *row[:2], "--max-tokens", 3, "--prompt", "the cat"
        ).code
        == 0
    )
    wrong = [
        *(("evaluate", source) for source in (encoder, index, neighbors)),
        ("evaluate", encoder, "--memory", "neural-cache"),
        ("inspect", encoder, "--text", "the cat"),
        ("generate", encoder, "--prompt", "the cat"),
        ("export", encoder, "--output", "out"),
        ("train", tokens, *small, "--init-from", encoder),
    ]
    for command in wrong:
        ended = memlm(*command)
        assert (ended.code, encoder in ended.err) == (4, True), command
    assert "context: 4 -> 3" in memlm("plan", "build-datastore", encoder, "--context", 3).out


def test_control_tokens_that_a_text_spells_are_told(memlm: Memlm, tmp_path: Path) -> None:
    """Each document ends with one, which nobody spelled."""
    saved(tmp_path / "pretrained", "llama")
    lines = ["the cat sees the dog", "a <|endoftext|> b <s> c <s>", "the dog"]
    for name, chosen in (("plain", [lines[0], lines[2]]), ("spelled", lines)):
        (tmp_path / f"{name}.txt").write_text("\n".join(chosen) + "\n", "utf-8")
    options = ["--documents", "line", "--tokenizer", tmp_path / "pretrained"]
    plain = memlm("tokenize", "--train", tmp_path / "plain.txt", *options)
    assert plain.code == 0 and "control tokens" not in plain.err
    spelled = memlm("tokenize", "--train", tmp_path / "spelled.txt", *options)
    assert "control tokens of the model" in spelled.err
    assert "<|endoftext|> 1 times and <s> 2 times" in spelled.err
