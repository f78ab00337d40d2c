"""Pairs of sentences through the commands: trained, stored, searched, scored; figures recomputed in
float64 numpy.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.inspection.request import Request, find
from stages.models.weights import load_model
from tests.builders.translation_commands import (
    SIZES,
    Pairs,
    model,
    pairs,
    prefix,
    split_arrays,
    tokens,
)
from tests.cli.conftest import Memlm
from tests.oracles import encoder_decoder as oracle

__all__ = ["model", "pairs", "prefix", "tokens"]


def models(folder: Path) -> list[str]:
    """What lies beside models, and they themselves, in the store of a folder."""
    return sorted(path.name for path in (folder / "store" / "model").iterdir())


def test_a_translator_is_trained_stored_and_scored_as_loops_say(
    tokens: str, tmp_path: Path, memlm: Memlm
) -> None:
    store = Store(tmp_path / "store")
    training = (
        "--backbone",
        "encoder-decoder",
        "--epochs",
        "6",
        "--batch-tokens",
        "128",
        "--label-smoothing",
        "0.1",
    )
    model = store.get(memlm("train", tokens, *training, *SIZES).reference)
    read = store.get(tokens)
    assert model.metrics["tokens"] == pytest.approx(
        6 * read.metrics["splits"]["train"]["tokens"], rel=0.02
    )
    datastore = store.get(memlm("build-datastore", model.reference, "--dtype", "float32").reference)
    index = memlm("build-index", datastore.reference, "--index", "flat")
    reading = ("--memory", "external:k=3,temperature=5,lambda=0.4")
    report = memlm("evaluate", index.reference, *reading, "--json")
    assert report.code == 0, report.err
    plain, mixed = (row["perplexity"] for row in json.loads(report.out)["metrics"]["rows"])

    weights = oracle.weights_of(load_model(model.path, "cpu"))
    shape = {"encoder_layers": 1, "layers": 1, "heads": 2}

    def read_pair(source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
        return oracle.decode(weights, [read.metrics["eos_id"], *target[:-1]], source, **shape)

    stored = [(read_pair(s, t)[1], t) for s, t in zip(*split_arrays(read, "train"), strict=True)]
    keys = np.concatenate([g for g, _ in stored])
    values = np.concatenate([t for _, t in stored])
    arrays = datastore.zarr("datastore.zarr")
    np.testing.assert_allclose(arrays["keys"][:], keys, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(arrays["values"][:], values)
    losses, mixtures = [], []
    for source, target in zip(*split_arrays(read, "test"), strict=True):
        f, g = read_pair(source, target)
        for token, log_p, query in zip(target, oracle.log_probs(weights, f), g, strict=True):
            distances = ((keys - query) ** 2).sum(1)
            nearest = np.argsort(distances, kind="stable")[:3]
            share = np.exp(-(distances[nearest] - distances[nearest[0]]) / 5)
            of_memory = share[values[nearest] == token].sum() / share.sum()
            losses.append(-log_p[token])
            mixtures.append(-math.log(0.6 * math.exp(log_p[token]) + 0.4 * of_memory))
    assert plain == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    assert mixed == pytest.approx(math.exp(np.mean(mixtures)), rel=1e-3)


def test_own_sentences_are_hidden_where_the_datastores_own_split_is_scored(
    model: str, tmp_path: Path, memlm: Memlm
) -> None:
    index = memlm("build-index", memlm("build-datastore", model).reference)
    report = memlm("evaluate", index.reference, "--split", "train", "--beam", 0)
    assert Store(tmp_path / "store").get(report.reference).config["exclude"] == "document"
    settled = memlm(
        "translate", index.reference, "--report", report.reference, "--text", "Hund und Katze"
    )
    assert settled.code == 0 and settled.out.count("\n") == 1, settled.err
    other = memlm("build-index", memlm("build-datastore", model, "--split", "valid").reference)
    for read, numbers in ((index, "reported"), (other, "elsewhere")):
        request = Request(source=read.reference, report=report.reference)
        assert find(request, Store(tmp_path / "store"), None).numbers == numbers


def test_packed_pairs_are_trained_with_memory(tokens: str, tmp_path: Path, memlm: Memlm) -> None:
    packed = memlm("pack-batches", tokens)
    store = Store(tmp_path / "store")
    batches, read = store.get(packed.reference), store.get(tokens)
    group = batches.zarr("batches.zarr")
    assert sorted(group["order"][:].tolist()) == list(
        range(read.metrics["splits"]["train"]["documents"])
    )
    np.testing.assert_array_equal(
        group["segment_offsets"][:], read.zarr("tokens.zarr")["train/doc_offsets"][:]
    )
    assert batches.metrics["token_overlap"] > batches.metrics["token_overlap_random"]
    trained = memlm(
        "train",
        packed.reference,
        "--method",
        "trime-ext",
        "--backbone",
        "encoder-decoder",
        "--steps",
        12,
        *SIZES,
    )
    model = store.get(trained.reference)
    memory = model.config["memory"]
    assert (memory["k"], memory["local_dropout"], memory["key"]) == (8, 1.0, "ffn-input")
    index = memlm(
        "build-index", memlm("build-datastore", model.reference).reference, "--metric", "ip"
    )
    report = memlm("evaluate", index.reference, "--json")
    assert report.code == 0, report.err


def test_a_datastore_of_pairs_grows_and_forgets(
    tokens: str, model: str, prefix: Path, tmp_path: Path, memlm: Memlm
) -> None:
    """The rows of other pairs that are added are those of a datastore of them; sentences go without
    a trace.
    """
    store = Store(tmp_path / "store")
    languages = ("--source", "de", "--target", "en", "--tokenizer", tokens)
    added = memlm("tokenize", *languages, "--train", prefix / "valid").reference
    old = store.get(memlm("build-datastore", model).reference)
    own = store.get(memlm("build-datastore", model, "--tokens", added).reference)
    grown = store.get(
        memlm("update-datastore", old.reference, "--add", added, "--forget", "0").reference
    )
    first = len(split_arrays(store.get(tokens), "train")[1][0])
    assert grown.metrics["encoded_again"] == 0
    before, beside, after = (one.zarr("datastore.zarr")["keys"][:] for one in (old, own, grown))
    np.testing.assert_array_equal(after[: len(before) - first], before[first:])
    np.testing.assert_allclose(after[len(before) - first :], beside, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("train", "TOKENS", "--backbone", "transformer", "--steps", 2), 4),
        (
            (
                "train",
                "TOKENS",
                "--backbone",
                "encoder-decoder",
                "--steps",
                2,
                "--segment-length",
                16,
            ),
            2,
        ),
        (
            (
                "train",
                "TOKENS",
                "--backbone",
                "encoder-decoder",
                "--steps",
                2,
                "--set",
                "model.cutoffs=[5]",
            ),
            2,
        ),
        (
            ("train", "TOKENS", "--backbone", "encoder-decoder", "--steps", 2, "--method", "trime"),
            4,
        ),
        (("pack-batches", "TOKENS", "--segment-length", 16), 2),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: tuple[object, ...],
    code: int,
    pairs: Pairs,
    tokens: str,
    tmp_path: Path,
    memlm: Memlm,
) -> None:
    ended = memlm(*(tokens if word == "TOKENS" else word for word in arguments))
    assert ended.code == code and ended.out == "", ended.err
    assert models(tmp_path) == models(pairs.folder)  # not even a draft


@pytest.mark.parametrize("length", [("--steps", 2), ("--epochs", 1)])
def test_the_line_of_a_pair_longer_than_a_batch_is_named_before_any_work(
    length: tuple[object, ...], pairs: Pairs, prefix: Path, tmp_path: Path, memlm: Memlm
) -> None:
    for language, line in (("de", "rot " * 8), ("en", "red " * 3)):
        lines = (prefix / f"train.{language}").read_text().splitlines()
        lines[41] = line.strip()
        (prefix / f"train.{language}").write_text("".join(f"{one}\n" for one in lines))
    languages = ("--source", "de", "--target", "en", "--tokenizer", "word")
    tokens = memlm("tokenize", *languages, "--train", prefix / "train").reference
    training = ("train", tokens, "--backbone", "encoder-decoder", *length, *SIZES)
    ended = memlm(*training, "--batch-tokens", 8)
    assert ended.code == 3 and "Line 42 " in ended.err and "--batch-tokens 9 " in ended.err
    assert models(tmp_path) == models(pairs.folder)  # not even a draft
    assert memlm(*training, "--batch-tokens", 9).code == 0


def test_a_model_of_one_language_is_told_that_it_is_given_pairs(
    tokens: str, text: Path, memlm: Memlm
) -> None:
    plain = memlm(
        "train", memlm("tokenize", "--train", text, "--test", text).reference, "--steps", 1
    ).reference
    ended = memlm("evaluate", plain, "--tokens", tokens)
    assert ended.code == 4 and "pairs of sentences" in ended.err


def test_a_translation_model_is_refused_where_there_is_no_source(
    tokens: str, model: str, text: Path, memlm: Memlm
) -> None:
    alone = memlm("tokenize", text, "--tokenizer", tokens, "--documents", "line").reference
    datastore = memlm("build-datastore", model).reference
    for arguments, code in (
        (("generate", model, "--prompt", "dog"), 2),
        (("inspect", model, "--text", "dog"), 2),
        (("evaluate", model, "--context", 4), 2),
        (("evaluate", model, "--tokens", alone), 4),
        (("train", alone, "--backbone", "encoder-decoder", "--steps", 1), 4),
        (("train", alone, "--init-from", model, "--steps", 1), 4),
        (("update-datastore", datastore, "--add", alone), 4),
    ):
        ended = memlm(*arguments)
        assert ended.code == code, (arguments, ended.err)


def test_a_line_that_is_too_long_for_a_sentence_is_named(memlm: Memlm, tmp_path: Path) -> None:
    (tmp_path / "pairs.de").write_text("ein satz\n" + "wort " * 300_000 + "\n", "utf-8")
    (tmp_path / "pairs.en").write_text("a line\nword\n", "utf-8")
    languages = ["--source", "de", "--target", "en"]
    ended = memlm("tokenize", *languages, "--train", tmp_path / "pairs")
    assert ended.code == 3
    assert f"{tmp_path}/pairs.de, line 2: 1,500,000 characters" in ended.err
    assert "Put one sentence in each line, or remove the pair from both files." in ended.err


def test_a_long_sentence_at_the_edge_of_a_shard_stays_whole(memlm: Memlm, tmp_path: Path) -> None:
    long = "wort " * 100_000 + "\n"
    (tmp_path / "pairs.de").write_text(long * 3, "utf-8")
    (tmp_path / "pairs.en").write_text("word\n" * 3, "utf-8")
    languages = ["--source", "de", "--target", "en", "--tokenizer", "word"]
    assert memlm("tokenize", *languages, "--train", tmp_path / "pairs").code == 0
