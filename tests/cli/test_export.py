"""`memlm export`."""

import json

import pytest

from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm


@pytest.fixture
def model(memlm: Memlm, text):
    tokens = memlm("tokenize", "--train", text, "--valid", text, "--test", text).reference
    return memlm("train", tokens, *SMALL, "--name", "small").reference


def test_a_folder_with_a_card_of_the_reports(memlm: Memlm, model, tmp_path):
    report = memlm(
        "evaluate", model, "--memory", "long:size=8,theta=0.3,lambda=0.2", "--name", "cached"
    )
    assert report.code == 0, report.err
    ended = memlm("export", model, "--output", tmp_path / "out")
    assert (ended.code, ended.out) == (0, f"{tmp_path / 'out'}\n"), ended.err
    assert f"hf upload NAME {tmp_path / 'out'}" in ended.err
    card = (tmp_path / "out/README.md").read_text()
    figures = json.loads((tmp_path / "store" / report.reference / "metrics.json").read_text())
    assert "# small" in card and "library_name: transformers" in card
    for row in figures["rows"]:
        cells = (
            "cached",
            "text.txt test",
            f"{figures['tokens']:,}",
            row["row"],
            f"{row['perplexity']:.2f}",
        )
        assert f"| {' | '.join(cells)} |" in card


def test_what_is_printed_as_json(memlm: Memlm, model, tmp_path):
    found = json.loads(
        memlm("export", "--output", tmp_path / "out", "--json", stdin=f"{model}\n").out
    )
    assert found["architecture"] == "GPT2LMHeadModel" and "model.safetensors" in found["files"]


def test_a_model_that_transformers_has_not_is_bad_usage(memlm: Memlm, text, tmp_path):
    tokens = memlm("tokenize", "--train", text, "--valid", text, "--test", text).reference
    lstm = memlm("train", tokens, "--backbone", "lstm", *SMALL[:6]).reference
    ended = memlm("export", lstm, "--output", tmp_path / "out")
    assert ended.code == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    ended = memlm("export", lstm, "--output", tmp_path / "mine")
    assert ended.code == 2
    assert memlm("export", tokens, "--output", tmp_path / "out").code == 4
