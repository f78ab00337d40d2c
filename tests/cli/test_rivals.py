"""The recipe that puts memories beside their rivals."""

import random
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Memlm

SHORT = (
    "--set",
    "model.steps=3",
    "--set",
    "tuned.segment_length=32",
    "--set",
    "tuned.batch_tokens=64",
)
ROWS = (
    *("plain", "neural-cache", "exact-stream", "exact (length λ)", "knn-lm", "open book"),
    *("dynamic", "report: plain", "report: neural-cache"),
)


@pytest.fixture
def texts(tmp_path: Path) -> list[object]:
    """Options of a recipe: texts of eight documents each, of a few words."""
    chosen = random.Random(0)
    words = ["the", "cat", "sees", "a", "hen", "and", "one", "dog", "meets", "some", "cow"]
    options: list[object] = ["--set", "tokens.documents=blank-line"]
    for split in ("train", "valid", "test"):
        documents = [" ".join(chosen.choices(words, k=80)) for _ in range(8)]
        file = tmp_path / f"{split}.txt"
        file.write_text("\n\n".join(documents), "utf-8")
        options += [f"--{split}", file]
    return options


def test_one_command_ends_with_one_table_of_gains_and_costs(
    memlm: Memlm, texts: list[object], tmp_path: Path
) -> None:
    ended = memlm("run", "rivals-small", *texts, *SHORT)
    assert ended.code == 0, ended.err
    _, _, shown = ended.err.rpartition(
        "plain, matches_report, knn, book, dynamic, report: 6 runs\n"
    )
    header, *lines = shown.split("\n\n")[0].splitlines()
    assert "bits/byte" in header and "forward/token" in header and "bytes beside" in header
    names = [re.split("  +", line)[0].removesuffix(" best") for line in lines]
    assert len(set(names)) == len(names), "a row that several reports read stands once"
    assert set(ROWS) <= set(names)
    (dynamic,) = (line for line in lines if line.startswith("dynamic"))
    assert " 3.00 " in dynamic, "a token that is learned counts three"

    reports = memlm("artifacts", "list", "report").out.split()
    references = sorted({word for word in reports if word.startswith("report/")})
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    assert memlm("report", *references, "--output", page, "--figures", figures).code == 0
    assert 'aria-label="Gain and cost"' in page.read_text("utf-8")
    assert (figures / "gain-by-seconds.csv").read_text("utf-8").count("\n") == 1 + len(lines) - 1
