"""Translation with neighbours among the pairs that BM25 finds for each sentence, recomputed in float64 numpy."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.models.weights import load_model
from tests.cli.conftest import Memlm
from tests.cli.test_translation import SIZES, prefix, split_arrays, tokens
from tests.oracles import encoder_decoder as oracle
from tests.oracles.bm25 import lucene_scores

__all__ = ["prefix", "tokens"]
PAIRS, K, TAU, LAMBDA = 4, 3, 5, 0.4
READING = f"similar-pairs:pairs={PAIRS},k={K},temperature={TAU},lambda={LAMBDA}"


def best_pairs(scores: np.ndarray) -> list[int]:
    rounded = scores.astype(np.float32)
    ranked = sorted(range(len(scores)), key=lambda pair: (-rounded[pair], pair))
    return [pair for pair in ranked if rounded[pair] > 0][:PAIRS]


@pytest.fixture
def model(tokens: str, memlm: Memlm) -> str:
    return memlm(
        "train", tokens, "--backbone", "encoder-decoder", "--epochs", 6, "--batch-tokens", 128, *SIZES
    ).reference


def test_tokens_read_the_pairs_found_for_their_sentence_as_loops_say(
    model: str, tokens: str, tmp_path: Path, memlm: Memlm
) -> None:
    store = Store(tmp_path / "store")
    ended = memlm("evaluate", model, "--memory", READING, "--beam", 2, "--json")
    assert ended.code == 0, ended.err
    plain, mixed = (row["perplexity"] for row in json.loads(ended.out)["metrics"]["rows"])
    read, weights = store.get(tokens), oracle.weights_of(load_model(store.get(model).path, "cpu"))
    (sources, targets), (asked, answers) = split_arrays(read, "train"), split_arrays(read, "test")
    scores = lucene_scores([one[:-1] for one in sources], [one[:-1] for one in asked])
    begins = np.append(0, np.cumsum([len(one) for one in targets]))

    def read_pair(source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
        inputs = [read.metrics["eos_id"], *target[:-1]]
        return oracle.decode(weights, inputs, source, encoder_layers=1, layers=1, heads=2)

    losses, mixtures, found = [], [], []
    for source, target, row in zip(asked, answers, scores, strict=True):
        pairs = sorted(best_pairs(row))
        found.append(set(pairs))
        keys = np.concatenate([read_pair(sources[pair], targets[pair])[1] for pair in pairs])
        values = np.concatenate([targets[pair] for pair in pairs])
        f, g = read_pair(source, target)
        for token, log_p, query in zip(target, oracle.log_probs(weights, f), g, strict=True):
            distances = ((keys - query) ** 2).sum(1)
            nearest = np.argsort(distances.astype(np.float32), kind="stable")[:K]
            share = np.exp(-(distances[nearest] - distances[nearest[0]]) / TAU)
            of_memory = share[values[nearest] == token].sum() / share.sum()
            losses.append(-log_p[token])
            mixtures.append(-math.log((1 - LAMBDA) * math.exp(log_p[token]) + LAMBDA * of_memory))
    assert plain == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    assert mixed == pytest.approx(math.exp(np.mean(mixtures)), rel=1e-3)
    report = store.get(json.loads(ended.out)["reference"])
    for line, pairs in zip(report.file("translations.jsonl").read_text("utf-8").splitlines(), found, strict=True):
        rows = [row for row in json.loads(line)["rows"]["similar-pairs"]["row"] if row >= 0]
        assert {int(np.searchsorted(begins, row, side="right")) - 1 for row in rows} <= pairs


def test_it_is_tuned_and_read_by_what_reads_a_report(model: str, tokens: str, tmp_path: Path, memlm: Memlm) -> None:
    tuned = memlm("evaluate", model, "--memory", "similar-pairs:pairs=4,k=tune,temperature=tune,lambda=tune")
    assert tuned.code == 0, tuned.err
    memory = Store(tmp_path / "store").get(tuned.reference).json("metrics.json")["memories"][0]
    assert memory["pairs"] == 4 and memory["tune_split"] == "valid"
    translated = memlm("translate", model, "--report", tuned.reference, "--text", "Hund und Katze", "--json")
    assert translated.code == 0, translated.err
    shown = memlm("inspect", model, "--report", tuned.reference, "--position", 0, "--json")
    assert shown.code == 0, shown.err
    contexts = [one for token in json.loads(shown.out)["tokens"] for one in token["contexts"]]
    assert contexts and all(one["back"] is None and one["source"]["split"] == "train" for one in contexts)
    assert memlm("evaluate", model, "--memory", "similar-pairs:lambda=adaptive,temperature=tune,k=8").code == 0


def test_pairs_of_another_corpus_are_found(model: str, tokens: str, prefix: Path, memlm: Memlm) -> None:
    languages = ("--source", "de", "--target", "en", "--tokenizer", tokens)
    (prefix / "one.de").write_text("rot rot\n")
    (prefix / "one.en").write_text("house cat\n")
    other = memlm("tokenize", *languages, "--train", prefix / "one", "--test", prefix / "test", "--name", "other")
    sure = "similar-pairs:pairs=1,k=1,temperature=0.01,lambda=0.999"
    said = memlm("translate", model, "--tokens", "tokens/other", "--memory", sure, "--text", "rot rot", "--attribute")
    assert said.code == 0 and said.out.startswith("house cat\n") and "-> house cat" in said.out, said.err
    report = memlm("evaluate", model, "--tokens", other.reference, "--memory", sure)
    again = memlm("translate", model, "--report", report.reference, "--text", "rot rot")
    assert again.out == "house cat\n"
    nothing = memlm("translate", model, "--tokens", other.reference, "--memory", sure, "--text", "Hund")
    plain = memlm("translate", model, "--memory", "none", "--text", "Hund")
    assert nothing.out == plain.out and plain.code == 0  # no pair shares a word: the model alone


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--memory", "similar-pairs:lambda=0.2,k=2,pairs=0"), 2),
        (("--memory", "similar-pairs:k=2"), 2),
        (("--memory", "similar-pairs+external:lambda=0.2"), 2),
        (("--memory", "similar-pairs:lambda=0.2", "--memory", "long:size=5,theta=1,lambda=0.2"), 2),
        (("--memory", "similar-pairs:lambda=0.2,temperature=1", "--split", "train", "--exclude", "self"), 2),
        (("--memory", "similar-pairs:lambda=0.2,pointers=3"), 2),
    ],
)
def test_what_cannot_be_read_is_said(model: str, memlm: Memlm, options: tuple[str, ...], code: int) -> None:
    ended = memlm("evaluate", model, *options)
    assert ended.code == code, ended.err


def test_where_there_are_no_pairs_none_is_found(model: str, tokens: str, prefix: Path, memlm: Memlm) -> None:
    languages = ("--source", "de", "--target", "en", "--tokenizer", tokens)
    bare = memlm("tokenize", *languages, "--test", prefix / "test").reference
    assert memlm("evaluate", model, "--tokens", bare, "--memory", READING).code == 4
    assert memlm("translate", model, "--tokens", bare, "--memory", "none", "--text", "rot").code == 2
    (prefix / "plain.txt").write_text("a b a b c d " * 40)
    text = memlm("tokenize", "--train", prefix / "plain.txt", "--test", prefix / "plain.txt").reference
    plain = memlm("train", text, "--steps", 1).reference
    assert memlm("evaluate", plain, "--memory", "similar-pairs:lambda=0.2").code == 2
