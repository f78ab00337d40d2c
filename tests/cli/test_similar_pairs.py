"""Translation with neighbours among the pairs that BM25 finds for each sentence, recomputed in
float64 numpy.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.models.weights import load_model
from stages.retrieval.weights.distance import MAX_WEIGHT, REACHES
from tests.builders.limits import limit
from tests.builders.translation_commands import model, pairs, prefix, split_arrays, tokens
from tests.cli.conftest import Memlm
from tests.oracles import encoder_decoder as oracle
from tests.oracles.bm25 import lucene_scores

__all__ = ["model", "pairs", "prefix", "tokens"]
PAIRS, K, TAU, LAMBDA = 4, 3, 5, 0.4
READING = f"similar-pairs:pairs={PAIRS},k={K},temperature={TAU},lambda={LAMBDA}"


def best_pairs(scores: np.ndarray) -> list[int]:
    rounded = scores.astype(np.float32)
    ranked = sorted(range(len(scores)), key=lambda pair: (-rounded[pair], pair))
    return [pair for pair in ranked if rounded[pair] > 0][:PAIRS]


class Step(NamedTuple):
    """A target token in float64: log p by the model, the distance to the nearest neighbour, p_mem,
    and the pairs.
    """

    log_p: float
    distance: float
    of_memory: float
    pairs: set[int]

    def nll(self, weight: float) -> float:
        return -math.log((1 - weight) * math.exp(self.log_p) + weight * self.of_memory)


def steps(model: Artifact, tokens: Artifact, split: str) -> list[list[Step]]:
    """Every token of every sentence of a split, read with the pairs of its sentence by loops."""
    weights = oracle.weights_of(load_model(model.path, "cpu"))
    (sources, targets), (asked, answers) = (
        split_arrays(tokens, "train"),
        split_arrays(tokens, split),
    )
    scores = lucene_scores([one[:-1] for one in sources], [one[:-1] for one in asked])

    def read_pair(source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
        inputs = [tokens.metrics["eos_id"], *target[:-1]]
        return oracle.decode(weights, inputs, source, encoder_layers=1, layers=1, heads=2)

    found = []
    for source, target, row in zip(asked, answers, scores, strict=True):
        pairs = sorted(best_pairs(row))
        keys = np.concatenate([read_pair(sources[pair], targets[pair])[1] for pair in pairs])
        values = np.concatenate([targets[pair] for pair in pairs])
        f, g = read_pair(source, target)
        sentence = []
        for token, log_p, query in zip(target, oracle.log_probs(weights, f), g, strict=True):
            distances = ((keys - query) ** 2).sum(1)
            nearest = np.argsort(distances.astype(np.float32), kind="stable")[:K]
            share = np.exp(-(distances[nearest] - distances[nearest[0]]) / TAU)
            of_memory = share[values[nearest] == token].sum() / share.sum()
            sentence.append(Step(log_p[token], distances[nearest[0]], of_memory, set(pairs)))
        found.append(sentence)
    return found


def test_tokens_read_the_pairs_found_for_their_sentence_as_loops_say(
    model: str, tokens: str, tmp_path: Path, memlm: Memlm
) -> None:
    store = Store(tmp_path / "store")
    ended = memlm("evaluate", model, "--memory", READING, "--beam", 2, "--json")
    assert ended.code == 0, ended.err
    plain, mixed = (row["perplexity"] for row in json.loads(ended.out)["metrics"]["rows"])
    read = steps(store.get(model), store.get(tokens), "test")
    every = [step for sentence in read for step in sentence]
    assert plain == pytest.approx(math.exp(np.mean([step.nll(0) for step in every])), rel=1e-4)
    assert mixed == pytest.approx(math.exp(np.mean([step.nll(LAMBDA) for step in every])), rel=1e-3)
    report = store.get(json.loads(ended.out)["reference"])
    begins = np.append(
        0, np.cumsum([len(one) for one in split_arrays(store.get(tokens), "train")[1]])
    )
    for line, sentence in zip(
        report.file("translations.jsonl").read_text("utf-8").splitlines(), read, strict=True
    ):
        rows = [row for row in json.loads(line)["rows"]["similar-pairs"]["row"] if row >= 0]
        assert {int(np.searchsorted(begins, row, side="right")) - 1 for row in rows} <= sentence[
            0
        ].pairs


def test_a_weight_falls_with_the_distance_as_loops_say(
    model: str, tokens: str, tmp_path: Path, memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, min_positions_of_fit=5, errors_of_gain=-math.inf)
    store = Store(tmp_path / "store")
    reading = f"similar-pairs:pairs={PAIRS},k={K},temperature={TAU},lambda=distance"
    ended = memlm("evaluate", model, "--memory", reading, "--beam", 2, "--json")
    assert ended.code == 0, ended.err
    valid, test = (
        [
            step
            for sentence in steps(store.get(model), store.get(tokens), split)
            for step in sentence
        ]
        for split in ("valid", "test")
    )

    def nll(split: list[Step], reach: float) -> float:
        return float(
            np.mean(
                [step.nll(min(MAX_WEIGHT, max(0.0, 1 - step.distance / reach))) for step in split]
            )
        )

    unit = sorted(step.distance for step in valid)[(len(valid) - 1) // 2]
    best = min((factor * unit for factor in REACHES), key=lambda reach: nll(valid, reach))
    report = store.get(json.loads(ended.out)["reference"])
    reach = report.json("weight-network.json")["reach"]
    assert nll(valid, reach) == pytest.approx(nll(valid, best), abs=1e-4)
    assert json.loads(ended.out)["metrics"]["nll"] == pytest.approx(nll(test, reach), rel=1e-3)
    assert 0 < np.mean([step.distance < reach for step in test]) < 1
    said = memlm("translate", model, "--report", report.reference, "--text", "Hund und Katze")
    first = json.loads(report.file("translations.jsonl").read_text("utf-8").splitlines()[0])
    again = memlm(
        "translate", model, "--report", report.reference, "--beam", 2, "--text", first["source"]
    )
    assert (
        said.code == 0 and again.out == first["rows"]["similar-pairs (distance λ)"]["text"] + "\n"
    )
    assert memlm("evaluate", model, "--memory", reading + ",similarity=dot").code == 2


def test_it_is_tuned_and_read_by_what_reads_a_report(
    model: str, tokens: str, tmp_path: Path, memlm: Memlm
) -> None:
    tuned = memlm(
        "evaluate", model, "--memory", "similar-pairs:pairs=4,k=tune,temperature=tune,lambda=tune"
    )
    assert tuned.code == 0, tuned.err
    memory = Store(tmp_path / "store").get(tuned.reference).json("metrics.json")["memories"][0]
    assert memory["pairs"] == 4 and memory["tune_split"] == "valid"
    translated = memlm(
        "translate", model, "--report", tuned.reference, "--text", "Hund und Katze", "--json"
    )
    assert translated.code == 0, translated.err
    shown = memlm("inspect", model, "--report", tuned.reference, "--position", 0, "--json")
    assert shown.code == 0, shown.err
    contexts = [one for token in json.loads(shown.out)["tokens"] for one in token["contexts"]]
    assert contexts and all(
        one["back"] is None and one["source"]["split"] == "train" for one in contexts
    )
    assert (
        memlm(
            "evaluate", model, "--memory", "similar-pairs:lambda=adaptive,temperature=tune,k=8"
        ).code
        == 0
    )


def test_pairs_of_another_corpus_are_found(
    model: str, tokens: str, prefix: Path, memlm: Memlm
) -> None:
    languages = ("--source", "de", "--target", "en", "--tokenizer", tokens)
    (prefix / "one.de").write_text("rot rot\n")
    (prefix / "one.en").write_text("house cat\n")
    other = memlm(
        "tokenize",
        *languages,
        "--train",
        prefix / "one",
        "--test",
        prefix / "test",
        "--name",
        "other",
    )
    sure = "similar-pairs:pairs=1,k=1,temperature=0.01,lambda=0.999"
    said = memlm(
        "translate",
        model,
        "--tokens",
        "tokens/other",
        "--memory",
        sure,
        "--text",
        "rot rot",
        "--attribute",
    )
    assert said.code == 0 and said.out.startswith("house cat\n") and "-> house cat" in said.out, (
        said.err
    )
    report = memlm("evaluate", model, "--tokens", other.reference, "--memory", sure)
    again = memlm("translate", model, "--report", report.reference, "--text", "rot rot")
    assert again.out == "house cat\n"
    nothing = memlm(
        "translate", model, "--tokens", other.reference, "--memory", sure, "--text", "Hund"
    )
    plain = memlm("translate", model, "--memory", "none", "--text", "Hund")
    assert nothing.out == plain.out and plain.code == 0  # no pair shares a word: the model alone


def test_no_more_is_read_than_there_is(model: str, tmp_path: Path, memlm: Memlm) -> None:
    numbers = (10**11, 10**12)
    every, more = (
        memlm("evaluate", model, "--memory", f"similar-pairs:pairs={n},k={n},lambda=0.2")
        for n in numbers
    )
    assert every.code == 0, every.err
    assert more.reference == every.reference


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--memory", "similar-pairs:lambda=0.2,k=2,pairs=0"), 2),
        (("--memory", "similar-pairs:k=2"), 2),
        (("--memory", "similar-pairs+external:lambda=0.2"), 2),
        (("--memory", "similar-pairs:lambda=0.2", "--memory", "long:size=5,theta=1,lambda=0.2"), 2),
        (
            (
                "--memory",
                "similar-pairs:lambda=0.2,temperature=1",
                "--split",
                "train",
                "--exclude",
                "self",
            ),
            2,
        ),
        (("--memory", "similar-pairs:lambda=0.2,pointers=3"), 2),
    ],
)
def test_what_cannot_be_read_is_said(
    model: str, memlm: Memlm, options: tuple[str, ...], code: int
) -> None:
    ended = memlm("evaluate", model, *options)
    assert ended.code == code, ended.err


def test_where_there_are_no_pairs_none_is_found(
    model: str, tokens: str, prefix: Path, memlm: Memlm
) -> None:
    languages = ("--source", "de", "--target", "en", "--tokenizer", tokens)
    bare = memlm("tokenize", *languages, "--test", prefix / "test").reference
    assert memlm("evaluate", model, "--tokens", bare, "--memory", READING).code == 4
    assert (
        memlm("translate", model, "--tokens", bare, "--memory", "none", "--text", "rot").code == 2
    )
    (prefix / "plain.txt").write_text("a b a b c d " * 40)
    text = memlm(
        "tokenize", "--train", prefix / "plain.txt", "--test", prefix / "plain.txt"
    ).reference
    plain = memlm("train", text, "--steps", 1).reference
    assert memlm("evaluate", plain, "--memory", "similar-pairs:lambda=0.2").code == 2
