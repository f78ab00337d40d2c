"""What `memlm tokenize` says, refuses and leaves to the text."""

import json
from pathlib import Path

import pytest

from stages.artifacts.store import Store
from tests.cli.conftest import Memlm


def test_the_table_of_splits_is_on_stderr_made_or_cached(memlm: Memlm, text: Path) -> None:
    for _ in range(2):
        ended = memlm("tokenize", "--train", text, "--valid", text, "--tokenizer", "word")
        header, train, valid = ended.err.splitlines()[-3:]
        assert f"{ended.reference}, word, 12 types" in ended.err
        assert header.split()[:5] == ["split", "documents", "tokens", "types", "unknown"]
        assert (train.split()[:2], valid.split()[3:5]) == (["train", "1"], ["11", "0.00%"])


def test_bpe_of_a_chosen_size_is_the_default(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    ended = memlm("tokenize", "--train", text)
    assert "a bpe vocabulary of 512 types" in ended.err
    assert Store(tmp_path / "store").get(ended.reference).config["vocab_size"] == 512
    assert memlm("tokenize", "--train", text, "--vocab-size", "auto").reference == ended.reference


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vocab-size", "9" * 23], "vocab_size: input should be less than or equal to 16777216"),
        (["--vocab-size", "many"], "vocab_size: input should be a valid integer"),
        (["--min-count", "2"], "min_count goes with the word tokenizer, not with bpe"),
        (["--max-record-bytes", "0"], "max_record_bytes: input should be greater than 0"),
        (["--split", "1"], "expected two shares, of train and valid, or three"),
    ],
)
def test_nonsense_is_bad_usage(options: list[str], message: str, memlm: Memlm, text: Path) -> None:
    ended = memlm("tokenize", text, *options)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


@pytest.mark.parametrize(
    "content",
    [
        "[" * 10_000,
        json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"}}),
        json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 4 * 10**9, "<unk>": 0}, "unk_token": "<unk>"}}),
        json.dumps({"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]]}}),
    ],
)
def test_an_odd_tokenizer_file_is_bad_data(content: str, memlm: Memlm, text: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text(content)
    ended = memlm("tokenize", "--train", text, "--tokenizer", odd)
    assert ended.code == 3, ended.err
