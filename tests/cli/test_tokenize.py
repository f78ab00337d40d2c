"""What `memlm tokenize` says, refuses and leaves to the text."""

import json
import re
from pathlib import Path

import pytest

from stages.artifacts.store import Store
from tests.cli.conftest import Memlm


def test_the_table_of_splits_is_on_stderr_made_or_cached(memlm: Memlm, text: Path) -> None:
    for _ in range(2):
        ended = memlm("tokenize", "--train", text, "--valid", text, "--tokenizer", "word")
        header, train, valid, words = ended.err.splitlines()[-4:]
        assert f"{ended.reference}, word, 12 " in ended.err
        assert header.split()[:5] == ["split", "documents", "tokens", "types", "unknown"]
        assert re.findall(r"(\w+): ", words) == ["documents", "paragraphs", "types"]
        assert (train.split()[:2], valid.split()[3:5]) == (["train", "1"], ["11", "0.00%"])


@pytest.mark.parametrize(
    ("splits", "said"),
    [
        ({"train": "a", "valid": "a", "test": "b"}, "train, valid and test hold"),
        ({"train": "a", "test": "ba"}, ": train and test hold"),
        ({"train": "c", "valid": "a", "test": "b"}, ": valid and test hold"),
        ({"train": "a", "valid": "c"}, None),
        ({"train": "ab"}, None),
    ],
)
def test_a_text_that_stands_in_several_splits_is_warned_of(
    memlm: Memlm, tmp_path: Path, splits: dict[str, str], said: str | None
) -> None:
    for name, text in {"a": "the cat sees\n", "b": "the cat sees\n", "c": "the dog runs\n"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    words = [
        word
        for split, names in splits.items()
        for name in names
        for word in (f"--{split}", f"{name}.txt")
    ]
    ended = memlm(
        "tokenize", *(tmp_path / word if word.endswith(".txt") else word for word in words)
    )
    assert ended.code == 0, ended.err
    assert (" hold " in ended.err, (said or "") in ended.err) == (said is not None, True)
    again = memlm(
        "tokenize", *(tmp_path / word if word.endswith(".txt") else word for word in words)
    )
    assert (" hold " in again.err) == (said is not None), "cached, too"


def test_the_store_in_a_folder_of_text_is_no_text(memlm: Memlm, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("the cat sees the dog\n" * 9)
    where = ("--store", folder / "memlm-store")
    first = memlm("tokenize", "--train", folder, *where)
    (folder / "memlm-store" / "trials").mkdir()
    (folder / "memlm-store" / "trials" / "part.txt").write_text("a part of some text\n")
    again = memlm("tokenize", "--train", folder, *where)
    assert (again.reference, "cached" in again.err) == (first.reference, True)
    named = memlm("tokenize", "--train", folder / "memlm-store" / "trials" / "part.txt", *where)
    assert named.code == 0 and named.reference != first.reference


def test_a_bad_file_of_a_folder_is_named_and_the_others_are_read(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.rst").write_text(text.read_text("utf-8"), "utf-8")
    (folder / "empty.txt").write_text("")
    ended = memlm("tokenize", folder, "--tokenizer", "char")
    assert (
        ended.code == 0
        and re.search(rf"\b1 of 5\b.*{folder}", ended.err)
        and "empty.txt" in ended.err
    )
    (folder / "empty.txt").unlink()
    assert memlm("tokenize", folder, "--tokenizer", "char").reference == ended.reference
    (tmp_path / "empty.txt").write_text("")
    alone = memlm("tokenize", tmp_path / "empty.txt", "--tokenizer", "char")
    assert alone.code == 3
    files = sorted(folder.iterdir())
    named = memlm("tokenize", *files, tmp_path / "empty.txt", "--tokenizer", "byte")
    assert named.code == 0 and "1 of 5 files are empty" in named.err


def test_a_second_file_behind_an_option_is_told_how_it_is_named(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    ended = memlm("tokenize", "--train", text, tmp_path / "b.txt", "--tokenizer", "char")
    assert ended.code == 2 and f"--train {text} --train {tmp_path / 'b.txt'}" in ended.err


def test_bpe_of_a_chosen_size_is_the_default(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    ended = memlm("tokenize", "--train", text)
    assert "512 types" in ended.err
    assert re.search(r"bpe, 2\d\d .*\b512\b", ended.err)
    assert Store(tmp_path / "store").get(ended.reference).config["vocab_size"] == 512
    assert memlm("tokenize", "--train", text, "--vocab-size", "auto").reference == ended.reference


@pytest.mark.parametrize(
    "content",
    [
        "[" * 10_000,
        json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"}}),
        json.dumps(
            {
                "model": {
                    "type": "WordLevel",
                    "vocab": {"a": 4 * 10**9, "<unk>": 0},
                    "unk_token": "<unk>",
                }
            }
        ),
        json.dumps({"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]]}}),
    ],
)
def test_an_odd_tokenizer_file_is_bad_data(
    content: str, memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text(content)
    ended = memlm("tokenize", "--train", text, "--tokenizer", odd)
    assert ended.code == 3, ended.err


@pytest.mark.parametrize(
    ("folder", "content", "message"),
    [
        (
            "empty",
            None,
            "empty is an empty folder; expected the tokenizer.json of a pretrained model.",
        ),
        (
            *("slow", {"vocab.txt": "a"}),
            "slow has no tokenizer.json, the one kind of tokenizer that is read. Where transformers has a fast "
            'tokenizer for it, AutoTokenizer.from_pretrained("slow").save_pretrained("FOLDER") writes one: name that '
            "folder.",
        ),
        (
            *("broken", {"tokenizer.json": "{}", "tokenizer_config.json": "{}"}),
            "broken/tokenizer.json is no tokenizer in Hugging Face's JSON format: Model missing. at line 1 column 2.",
        ),
    ],
)
def test_a_folder_without_a_tokenizer_is_told_as_one(
    memlm: Memlm, text, tmp_path, monkeypatch, folder, content, message
):
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder).mkdir()
    for name, written in (content or {}).items():
        (tmp_path / folder / name).write_text(written)
    ended = memlm("tokenize", "--tokenizer", folder, "--train", text)
    assert (ended.code, ended.out, ended.err.splitlines()[-1]) == (
        3,
        "",
        f"memlm tokenize: {message}",
    )
    assert not [path for path in (tmp_path / "store").rglob("*") if path.name.endswith("-partial")]


def test_the_command_reads_a_column(memlm: Memlm, tmp_path: Path) -> None:
    """The tokens are those of the same texts as JSON lines; another column is another id."""
    table = tmp_path / "a.csv"
    table.write_text("review,other\n" + "good food,x\nbad food,y\n" * 20, "utf-8")
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"text": "good food"}\n{"text": "bad food"}\n' * 20, "utf-8")
    of_table = memlm("tokenize", table, "--column", "review")
    of_lines = memlm("tokenize", lines)
    figures = [line for line in of_table.err.splitlines() if line.startswith("train ")]
    assert figures and figures[0] in of_lines.err
    assert memlm("tokenize", table, "--column", "other").reference != of_table.reference
    assert memlm("tokenize", table).code == 3
