"""Tasks that cannot be learnt, through the command: its exit code, and a sentence that names what
is legal.
"""

import json
import re
from pathlib import Path

import pytest

from stages.tasks.frequent_label import FREQUENT_LABEL
from tests.cli.conftest import Memlm
from tests.stages.small_tasks import TASKS, write_task

SMALL = (
    "--segment-length",
    16,
    "--batch-tokens",
    128,
    "--steps",
    6,
    "--set",
    "model.width=16",
    "--set",
    "model.heads=2",
)
GOOD = {"train": 16, "test": 8}


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [write_task(tmp_path / name, labels, GOOD) for name, labels in TASKS.items()]


@pytest.fixture
def tokens(memlm: Memlm, folders: list[Path]) -> str:
    made = memlm("tokenize", "--tasks", *folders, "--tokenizer", "word", "--min-count", 1)
    assert made.code == 0, made.err
    return made.out.split()[0]


def test_tasks_without_labels_or_with_labels_at_test_alone_are_refused(
    memlm: Memlm, tmp_path: Path
) -> None:
    bare, late = tmp_path / "bare", write_task(tmp_path / "late", ("a", "b"), GOOD)
    bare.mkdir()
    (bare / "train.jsonl").write_text(json.dumps({"text": "no label"}) + "\n")
    (late / "test.jsonl").write_text(json.dumps({"text": "x", "label": "never learnt"}) + "\n")
    for folder, named in ((bare, "label"), (late, "never learnt")):
        made = memlm("tokenize", "--tasks", folder, "--tokenizer", "word", "--min-count", 1)
        assert made.code == 3 and named in made.err and not made.out


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("--method", "seq", "--order", "colours,beasts"), 2, "colours,beasts,moods"),
        (("--method", "seq", "--order", "colours,beasts,beasts"), 2, "colours,beasts,moods"),
        (("--method", "seq", "--order", "colours,beasts,mods"), 2, "moods"),
        (("--method", "replay", "--set", "memory.write=1.5"), 2, "write"),
        (("--method", "lamol", "--set", "memory.gamma=2"), 2, "gamma"),
        (("--method", "lamol", "--segment-length", 2, "--batch-tokens", 32), 2, "--segment-length"),
        (("--method", "emar", "--set", "memory.size=0"), 2, "size"),
        (("--method", "replay", "--set", "memory.size=0"), 2, "size"),
        (("--method", "emar", "--set", "memory.size=17"), 2, "more than 16"),
        (("--method", "replay", "--set", "memory.size=17"), 2, "more than 16"),
        (("--method", "meta-mbpa"), 4, "build-episodes"),
        (("--method", "sparse-memory"), 2, "--init-from"),
        (("--method", "lamol", "--set", "model.cutoffs=[4]"), 2, "cutoffs"),
        (("--method", "elle", "--compile"), 2, "compile"),
        (("--method", "elle", "--set", "memory.wider=[0]"), 2, "wider"),
        (("--method", "elle", "--set", "memory.wider=[2,2,2]"), 2, "at most 2"),
    ],
)
def test_a_training_that_does_not_fit_is_refused(
    memlm: Memlm, tokens: str, arguments: tuple, code: int, named: str
) -> None:
    made = memlm("train", tokens, *SMALL, *arguments)
    assert made.code == code and named in made.err and not made.out, made.err


def test_tokens_without_tasks_and_memory_larger_than_what_was_read(
    memlm: Memlm, tokens: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("a b c d\n\n" * 400)
    text = memlm("tokenize", "--train", tmp_path / "text.txt", "--tokenizer", "word").out.split()[0]
    made = memlm("train", text, "--method", "seq", *SMALL)
    assert made.code == 4 and "--tasks" in made.err
    kept = memlm("train", tokens, "--method", "emar", *SMALL, "--set", "memory.size=10")
    assert kept.code == 0, kept.err
    for reading in (
        "coarse:k=31,steps=1",
        "random:k=31",
        "random:k=4/31",
        "mbpa:k=31",
        "episodic:k=31",
    ):
        matrix = memlm("evaluate-tasks", kept.out.split()[0], "--memory", reading)
        assert matrix.code == 2 and "k is at most" in matrix.err and not matrix.out, matrix.err
    matrix = memlm("evaluate-tasks", kept.out.split()[0], "--memory", "coarse:steps=1")
    assert matrix.code == 0, "all there is: nobody has asked for 32"
    (control,) = (line for line in matrix.err.splitlines() if line.startswith(FREQUENT_LABEL))
    assert len(re.findall(r"\d+\.\d%", control)) == len(TASKS)
    refused = memlm("evaluate-tasks", kept.out.split()[0], "--memory", "mbpa")
    assert refused.code == 2 and "build-episodes" in refused.err


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("--records", "spans"), 3, "train.jsonl, record 1"),
        (("--records", "answers"), 3, "train.jsonl, record 1"),
        (("--records", "span"), 2, "spans"),
        (("--records", "text", "--label", "topic"), 2, "label"),
        (("--label-groups", 99), 2, "one folder"),
        (("--label", "topic"), 3, "--label"),
        (("--candidates", "among"), 3, "among"),
        (("--records", "text", "--candidates", "among"), 2, "candidates"),
    ],
)
def test_records_of_another_kind_are_refused(
    memlm: Memlm, folders: list[Path], arguments: tuple, code: int, named: str
) -> None:
    made = memlm(
        "tokenize", "--tasks", *folders, "--tokenizer", "word", "--min-count", 1, *arguments
    )
    assert made.code == code and named in made.err and not made.out, made.err
    assert memlm("tokenize", folders[0] / "train.jsonl", "--records", "text").code == 2, (
        "without --tasks"
    )


def test_answers_in_a_text_are_scored_and_what_does_not_fit_is_refused(
    memlm: Memlm, tmp_path: Path
) -> None:
    for split, count in GOOD.items():
        lines = (
            json.dumps({"text": f"a b {n % 3} c", "answer": str(n % 3)}) + "\n"
            for n in range(count)
        )
        (tmp_path / "numbers").mkdir(exist_ok=True)
        (tmp_path / "numbers" / f"{split}.jsonl").write_text("".join(lines))
    tokens = memlm(
        "tokenize", "--tasks", tmp_path / "numbers", "--records", "spans", "--tokenizer", "bpe"
    )
    assert tokens.code == 0, tokens.err
    name = tokens.out.split()[0]
    refused = memlm("train", name, *SMALL, "--method", "emar")
    assert refused.code == 2 and "seq" in refused.err and not refused.out
    model = memlm("train", name, *SMALL, "--method", "seq")
    assert model.code == 0, model.err
    source = model.out.split()[0]
    assert (
        memlm("evaluate-tasks", source, "--score", "exact", "--memory", "random:steps=1,k=2").code
        == 0
    )
    for arguments, code, named in (
        (("--score", "bleu"), 2, "f1"),
        (("--score", "letters=f1"), 2, "numbers"),
        (("--score", "goal"), 2, "dialogue"),
        (("--memory", "random:lr=tune"), 4, "--tune-split"),
        (("--memory", "random:k=tune"), 2, "k=8/32"),
        (("--memory", "episodic"), 2, "mbpa"),
        (("--memory", "mbpa:weight=near"), 2, "distance"),
        (("--candidates",), 2, "labels"),
    ):
        made = memlm("evaluate-tasks", source, *arguments)
        assert made.code == code and named in made.err and not made.out, made.err
