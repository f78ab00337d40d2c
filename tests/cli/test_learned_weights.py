"""Weights of each context, fitted by an evaluation: what reads its report reads them, and says so."""

import math
from pathlib import Path

import pytest

from tests.builders.limits import limit
from tests.builders.translation_commands import model, pairs, prefix
from tests.cli.conftest import Memlm

__all__ = ["model", "pairs", "prefix"]
POLICIES = ("lambda=learned", "lambda=learned,searched=0.5", "lambda=adaptive", "lambda=distance")


@pytest.fixture(autouse=True)
def always_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of a hundred tokens are read, whatever they gain."""
    limit(monkeypatch, min_positions_of_fit=1, errors_of_gain=-math.inf)


@pytest.mark.parametrize("source", ["external", "similar-pairs"])
def test_translations_are_searched_for_with_them(source: str, model: str, memlm: Memlm) -> None:
    opened = model
    if source == "external":
        opened = memlm(
            "build-index", memlm("build-datastore", model).reference, "--index", "flat"
        ).reference
    for policy in (
        POLICIES[1::2] if source == "external" else POLICIES[:1]
    ):  # all are read where text is written
        reading = f"{source}:k=4,temperature=5,{policy}"
        report = memlm("evaluate", opened, "--memory", reading, "--beam", 0)
        assert report.code == 0, report.err
        said = memlm(
            "translate", opened, "--report", report.reference, "--beam", 1, "--text", "Hund"
        )
        assert said.code == 0 and "lambda learned" in said.err, (policy, said.err)
        seen = memlm("inspect", opened, "--report", report.reference, "--position", 3)
        assert seen.code == 0 and "lambda learned" in seen.out + seen.err, (policy, seen.err)


def test_text_is_written_with_them(text: Path, tmp_path: Path, memlm: Memlm) -> None:
    other = tmp_path / "other.txt"
    other.write_text(text.read_text("utf-8")[::-1][:200], "utf-8")
    files = ("--train", text, "--valid", other, "--test", other)
    read = memlm("tokenize", *files, "--tokenizer", "char").reference
    model = memlm(
        "train", read, "--steps", 4, "--segment-length", 16, "--batch-tokens", 64
    ).reference
    index = memlm(
        "build-index", memlm("build-datastore", model).reference, "--index", "flat"
    ).reference
    for policy in POLICIES:
        report = memlm("evaluate", index, "--memory", f"external:k=4,temperature=5,{policy}")
        assert report.code == 0, report.err
        for name, *options in (
            ("generate", "--prompt", "the", "--max-tokens", 4),
            ("inspect", "--position", 3),
        ):
            ended = memlm(name, index, "--report", report.reference, *options)
            assert ended.code == 0 and "lambda learned" in ended.out + ended.err, (
                policy,
                ended.err,
            )
