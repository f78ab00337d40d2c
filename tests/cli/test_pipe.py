"""Stages chained by references: one line on stdout, all else on stderr."""

import json
from pathlib import Path

from stages.artifacts.store import Store
from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm


def test_each_stage_reads_what_the_one_before_printed(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    printed = memlm("tokenize", "--train", text, "--valid", text, "--test", text)
    kinds, index = [printed.reference.partition("/")[0]], ""
    for command in ("train", "build-datastore", "build-index", "precompute-neighbors", "evaluate"):
        more = {"train": SMALL, "evaluate": ["--exclude", "self"]}.get(command, [])
        printed = memlm(command, *more, stdin=f"some line before\n{printed.out}\n")
        kinds.append(printed.reference.partition("/")[0])
        index = printed.reference if kinds[-1] == "neighbors" else index
    assert kinds == ["tokens", "model", "datastore", "index", "neighbors", "report"]
    assert "perplexity" in printed.err
    assert "(--exclude self)" in printed.err  # it makes a gain none
    assert "--epochs" in memlm("evaluate", *more, "--verbose", stdin=f"{index}\n").err
    names = [a.kind for a in Store(tmp_path / "store").artifacts()]
    assert names == kinds


def test_the_same_work_is_not_done_again(memlm: Memlm, text: Path) -> None:
    first = memlm("tokenize", "--train", text)
    again = memlm("tokenize", "--train", text)
    assert again.reference == first.reference
    assert "cached" in again.err and "cached" not in first.err


def test_an_argument_wins_over_standard_input_and_a_dash_reads_it(memlm: Memlm, text: Path) -> None:
    tokens = memlm("tokenize", "--train", text).reference
    model = memlm("train", tokens, *SMALL, stdin="tokens/000000000000").reference
    assert memlm("train", "-", *SMALL, stdin=tokens).reference == model


def test_json_holds_the_reference_and_the_metrics(memlm: Memlm, text: Path) -> None:
    line = json.loads(memlm("tokenize", "--train", text, "--json", "--name", "small").out)
    assert line["reference"] == f"{line['kind']}/{line['id']}"
    assert line["status"] == "made"
    assert line["metrics"]["splits"]["train"]["documents"] == 1
    assert Path(line["path"]).is_dir()
    again = json.loads(memlm("tokenize", "--train", text, "--json").out)
    assert again["status"] == "cached"
    assert memlm("train", "tokens/small", *SMALL).reference.startswith("model/")


def test_options_win_over_set_which_wins_over_the_file(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    tokens = memlm("tokenize", "--train", text).reference
    file = tmp_path / "train.toml"
    file.write_text("seed = 1\n[optimizer]\nlr = 0.1\nweight-decay = 0.25\n")
    said = ["--config", file, "--set", "optimizer.lr=0.2", "--set", "seed=2", "--seed", "3"]
    reference = memlm("train", tokens, *SMALL, *said).reference
    config = Store(tmp_path / "store").get(reference).config
    assert config["seed"] == 3
    assert config["optimizer"]["lr"] == 0.2
    assert config["optimizer"]["weight_decay"] == 0.25
    assert config["optimizer"]["betas"] == [0.9, 0.98]


def test_a_tokenizer_of_other_tokens_is_taken_over(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    tokens = memlm(
        "tokenize", "--train", text, "--tokenizer", "bpe", "--vocab-size", "260"
    ).reference
    other = tmp_path / "other.txt"
    other.write_text("a cow sees a hen\n")
    again = memlm("tokenize", "--test", other, "--tokenizer", tokens).reference
    store = Store(tmp_path / "store")
    assert (
        store.get(again).metrics["vocabulary_size"] == store.get(tokens).metrics["vocabulary_size"]
    )


def test_an_unknown_tokenizer_and_a_wrong_kind_are_refused(memlm: Memlm, text: Path) -> None:
    ended = memlm("tokenize", "--train", text, "--tokenizer", "wrod")
    assert ended.code == 2
    assert "'word'" in ended.err
    tokens = memlm("tokenize", "--train", text).reference
    ended = memlm("build-index", tokens)
    assert ended.code == 4
    assert "datastore" in ended.err


def test_bad_text_is_exit_3(memlm: Memlm, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"good\n\xff\xfe bad\n")
    for path in (empty, broken, tmp_path / "missing.txt"):
        ended = memlm("tokenize", "--train", path)
        assert ended.code == 3, ended.err
        assert path.name in ended.err
