"""Text that was read before is found although only one of two texts is cut into lines."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.store import Store
from stages.evaluation.figures.texts import repeated_tokens, whole_split
from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm
from tests.oracles import text as oracle

LONG = 130
"""Lines of a run that is cut into lines."""
SHORT = 20


def some_lines(seed: int, count: int) -> list[str]:
    """Lines of six words each, all different."""
    draw = random.Random(seed)
    return [" ".join(f"w{draw.randrange(300)}" for _ in range(6)) + "\n" for _ in range(count)]


TRAIN = some_lines(1, LONG)
OTHER = some_lines(2, LONG)


def outside(memlm: Memlm, tmp_path: Path, train: str, test: str, *options: str) -> dict[str, Any]:
    """What a report says of paragraphs that were read before."""
    for name, text in (("train", train), ("test", test)):
        (tmp_path / f"{name}.txt").write_text(text, "utf-8")
    files = ["--train", tmp_path / "train.txt", "--test", tmp_path / "test.txt"]
    tokens = memlm("tokenize", *files, *options).reference
    model = memlm("train", tokens, *SMALL).reference
    report = Store(tmp_path / "store").get(memlm("evaluate", model).reference, "report")
    found: dict[str, Any] = report.json("metrics.json")["outside_repeated_paragraphs"]
    return found


@pytest.mark.parametrize(
    "tokenizer",
    [["word", "--min-count", "1"], ["bpe", "--vocab-size", "600"], ["byte"]],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize(
    ("train", "test"),
    [
        (TRAIN, TRAIN[50 : 50 + SHORT]),
        (TRAIN[:SHORT], TRAIN[:SHORT] * (LONG // SHORT + 1)),
        ([*TRAIN, "\n", *OTHER[:SHORT]], [*TRAIN[:SHORT], "\n", *OTHER[:SHORT]]),
    ],
    ids=["train is cut", "test is cut", "mixed"],
)
def test_all_of_a_text_was_read_before(
    memlm: Memlm, tmp_path: Path, tokenizer: list[str], train: list[str], test: list[str]
) -> None:
    found = outside(memlm, tmp_path, "".join(train), "".join(test), "--tokenizer", *tokenizer)
    assert (found["repeated_share"], found["tokens"]) == (1.0, 0)


@pytest.mark.parametrize("cut", ["train", "test"])
def test_documents_of_one_line_are_lines(memlm: Memlm, tmp_path: Path, cut: str) -> None:
    """One side has a document for each line, the other paragraphs of the same lines."""
    paragraphs = tmp_path / "paragraphs.txt"
    paragraphs.write_text("".join([*TRAIN[:SHORT], "\n", *TRAIN[SHORT : 2 * SHORT]]), "utf-8")
    sentences = tmp_path / "sentences.jsonl"
    records = [json.dumps({"text": line.strip()}) + "\n" for line in TRAIN[: 2 * SHORT]]
    sentences.write_text("".join(records), "utf-8")
    files = {"train": paragraphs, "test": paragraphs, cut: sentences}

    words = ["--tokenizer", "word", "--min-count", "1"]
    by_split = [word for split, file in files.items() for word in (f"--{split}", file)]
    reference = memlm("tokenize", *by_split, *words).reference
    tokens = Store(tmp_path / "store").get(reference, "tokens")
    (repeated,) = repeated_tokens(tokens, "test", [whole_split(tokens, "train")])
    assert repeated.all()


def test_lines_of_short_runs_alone_are_not_compared(memlm: Memlm, tmp_path: Path) -> None:
    found = outside(memlm, tmp_path, "".join(TRAIN[:SHORT]), "".join(TRAIN[1:SHORT]))
    assert found["repeated_tokens"] == 0


def test_lines_of_unknown_words_are_not_equal(memlm: Memlm, tmp_path: Path) -> None:
    train = "".join([*TRAIN, *["rare-a rare-b\n"]])
    found = outside(memlm, tmp_path, train, "rare-c rare-d\n", "--tokenizer", "word")
    assert found["repeated_tokens"] == 0


def expected(train: str, test: str, longest: int) -> list[bool]:
    """Whether each word and each end of a line of `test` was read before, by comparing lines of
    text.
    """
    paragraphs: set[str] = set()
    run_lines: set[str] = set()
    all_lines: set[str] = set()
    for paragraph in oracle.paragraphs(train):
        lines = [line.strip() for line in oracle.lines(paragraph) if line.strip()]
        all_lines.update(lines)
        if len(lines) > longest:
            run_lines.update(lines)
        else:
            paragraphs.add(paragraph.strip())

    repeated = []
    for paragraph in oracle.paragraphs(test):
        lines = oracle.lines(paragraph)
        cut = sum(bool(line.strip()) for line in lines) > longest
        verdict = False
        for line in lines:
            if line.strip():
                in_lines = line.strip() in (all_lines if cut else run_lines)
                verdict = in_lines or (not cut and paragraph.strip() in paragraphs)
            repeated += [verdict] * len(oracle.word_tokens(line))
    return repeated


@pytest.mark.parametrize("at_once", [1, 50, 1 << 22])
@pytest.mark.parametrize("seed", range(6))
def test_lines_are_those_of_the_text(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, at_once: int
) -> None:
    longest = 4
    monkeypatch.setattr("stages.text.documents.LONGEST_LINES", longest)
    monkeypatch.setattr("stages.evaluation.figures.lines.TOKENS_AT_ONCE", at_once)
    draw = random.Random(seed)
    texts = {}
    for split in ("train", "test"):
        lines = draw.choices(["a b\n", "c\n", "d e f\n", "g\n", "h i\n", "\n", " \n"], k=60)
        # Lines of one text alone, so that not all is read before.
        texts[split] = "x\n" + "".join(lines) + f"{split}\n"
        (tmp_path / f"{split}.txt").write_text(texts[split], "utf-8")
    files = ["--train", tmp_path / "train.txt", "--test", tmp_path / "test.txt"]
    words = ["--tokenizer", "word", "--min-count", "1"]
    reference = memlm("tokenize", *files, *words).reference
    tokens = Store(tmp_path / "store").get(reference, "tokens")

    (repeated,) = repeated_tokens(tokens, "test", [whole_split(tokens, "train")])
    assert repeated.tolist() == expected(texts["train"], texts["test"], longest)
    assert 0 < repeated.sum() < len(repeated)
