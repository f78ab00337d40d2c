"""Several seeds: a recipe runs with each, and their reports are taken together."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Memlm
from tests.pipelines.conftest import RECIPE

REPORT = """
[stages.report]
command = "evaluate"
from = "model"
settings = { split = "train", memory = ["long:size=20,theta=1,lambda=0.1"] }

[sweep]
model.steps = [1, 2]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "seeds.toml"
    path.write_text(RECIPE.split("[stages.datastore]")[0] + REPORT, encoding="utf-8")
    return path


def test_seeds_and_sweeps_end_with_means_and_intervals(
    memlm: Memlm, recipe: Path, text: Path, tmp_path: Path
) -> None:
    ended = memlm("run", recipe, "--train", text, "--seeds", 3)
    assert ended.code == 0, ended.err
    table = ended.err[ended.err.index("report: 6 runs") :]
    last_table = f"{ended.reference}, model.steps 2, seed 2, "
    assert last_table in ended.err
    assert "report[model.steps=1]" in table and "report[model.steps=2]" in table
    assert re.search(r"\b0, 1, 2\b", table)
    again = memlm("run", recipe, "--train", text, "--seeds", 3, "--set", "model.seed=1")
    assert (
        again.err.count(" cached (") == 1 + 2 * 2 * 2
    )  # tokens; models and reports of seeds 1 and 2, of both steps
    reports = [
        line
        for line in memlm("artifacts", "list", "report").out.split()
        if line.startswith("report/")
    ]
    compared = memlm("compare", *sorted(set(reports)), "--json")
    assert compared.code == 0, compared.err
    page = tmp_path / "page.html"
    assert memlm("report", *sorted(set(reports)), "--output", page).code == 0
    assert 'aria-label="Means over seeds"' in page.read_text("utf-8")
    found = json.loads(compared.out)
    assert sorted(group["seeds"] for group in found["groups"]) == [[0, 1, 2, 3], [0, 1, 2, 3]]
    first, second = found["groups"]
    rows = [row for group in found["groups"] for row in group["rows"]]
    assert [row["perplexity"]["n"] for row in rows] == [4] * 4
    assert all(row["perplexity"]["interval"][0] < row["perplexity"]["mean"] for row in rows)
    assert first["rows"][0]["change"] is None and second["rows"][0]["change"]["n"] == 4


def test_unknown_tokens_are_told_beside_means(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("the cat sees the heron\n" * 4)
    tokens = memlm(
        "tokenize", "--train", text, "--test", tmp_path / "test.txt", "--tokenizer", "word"
    ).reference
    small = ["--steps", 1, "--segment-length", 16, "--batch-tokens", 32]
    models = [memlm("train", tokens, *small, "--seed", seed).reference for seed in range(3)]
    compared = memlm("compare", *(memlm("evaluate", model).reference for model in models))
    assert (compared.out.count("16.7%"), compared.out.count("<unk>")) == (1, 1), compared.err


def test_means_are_of_reports_of_one_text(memlm: Memlm, text: Path) -> None:
    small = ["--steps", 1, "--segment-length", 16, "--batch-tokens", 32]
    references = []
    for tokenizer in ("word", "char"):
        tokens = memlm("tokenize", "--train", text, "--tokenizer", tokenizer).reference
        for seed in (0, 1):
            model = memlm("train", tokens, *small, "--seed", seed).reference
            references.append(memlm("evaluate", model, "--split", "train").reference)
    ended = memlm("compare", *references)
    assert ended.code == 4
    assert memlm("compare", *references[:2], references[0], "--csv", "x.csv").code == 2
    assert memlm("compare", *references[:2], references[0], "--confidence", "1").code == 2
