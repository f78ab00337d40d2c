"""Batches from the command line, and in a recipe."""

import json
from pathlib import Path

from stages.artifacts.store import Store
from tests.cli.conftest import Memlm

SETTINGS = ["--segment-length", "16", "--k", "3"]


def test_the_reference_goes_to_stdout_and_the_summary_to_stderr(
    memlm: Memlm, text: Path, tmp_path: Path
) -> None:
    tokens = memlm("tokenize", "--train", text)
    ended = memlm(
        "pack-batches",
        *SETTINGS,
        "--bm25",
        "okapi",
        "--seed",
        "7",
        "--name",
        "small",
        stdin=tokens.out,
    )
    batches = Store(tmp_path / "store").get(ended.reference)
    assert batches.reference == Store(tmp_path / "store").get("batches/small").reference
    assert (
        batches.config.items() >= {"segment_length": 16, "k": 3, "bm25": "okapi", "seed": 7}.items()
    )
    assert all(
        name in ended.err
        for name in ("hop rate", "mean link score", "token overlap", "tokens left out")
    )


def test_json_holds_the_metrics(memlm: Memlm, text: Path) -> None:
    tokens = memlm("tokenize", "--train", text).reference
    line = json.loads(memlm("pack-batches", tokens, *SETTINGS, "--json").out)
    assert line["kind"] == "batches"
    assert 0 < line["metrics"]["hop_rate"] <= 1


def test_links_across_documents_alone(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    tokens = memlm("tokenize", "--train", text, "--documents", "line").reference
    options = ["--exclude", "document", "--apart", "2"]
    batches = Store(tmp_path / "store").get(
        memlm("pack-batches", tokens, *SETTINGS, *options).reference
    )
    assert (batches.config["exclude"], batches.config["apart"]) == ("document", 2)
    whole = memlm("pack-batches", memlm("tokenize", "--train", text).reference, *SETTINGS, *options)
    assert whole.code == 3 and "memlm tokenize --documents" in whole.err


def test_errors_have_the_codes_of_the_contract(memlm: Memlm, text: Path) -> None:
    tokens = memlm("tokenize", "--train", text).reference
    short = memlm("pack-batches", tokens, "--segment-length", "1000")
    assert (short.code, short.out) == (3, "")
    assert "--segment-length" in short.err
    assert (
        memlm(
            "pack-batches", memlm("tokenize", "--test", text, "--tokenizer", "byte").reference
        ).code
        == 4
    )
    assert memlm("pack-batches", memlm("pack-batches", tokens, *SETTINGS).reference).code == 4


def test_a_recipe_packs(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "packing.toml"
    recipe.write_text(
        'description = "packing"\n[inputs]\ntrain = "text"\n'
        '[stages.tokens]\ncommand = "tokenize"\nwith = { train = "{train}" }\n'
        '[stages.batches]\ncommand = "pack-batches"\nfrom = "tokens"\nsettings = { segment_length = 16 }\n'
    )
    ended = memlm("run", recipe, "--train", text)
    assert ended.reference.startswith("batches/")
    assert "hop rate" in ended.err
