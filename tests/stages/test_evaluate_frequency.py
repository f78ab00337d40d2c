"""Perplexity by frequency, and rows that diverge, through the stage."""

import math
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.evaluation.work import EvaluateWork
from stages.tokenize import Tokenize, TokenizeConfig
from tests.oracles.frequency import RANGES, by_frequency
from tests.stages.slow_evaluation import evaluated, metrics
from tests.stages.small_store import VOCABULARY, ModelConfig, array, small_model, small_tokens

pytestmark = pytest.mark.usefixtures("short_shards")

CACHE = "long:size=6,theta=0.5,lambda=0.3"


def ids(tokens: Artifact, split: str) -> list[int]:
    return array(tokens, "tokens.zarr", f"{split}/ids").tolist()


def check(report: Artifact, counted: list[int]) -> list[int]:
    """Compare the buckets of both rows with the saved scores of tokens; gives the buckets that
    there are.
    """
    told = metrics(report)["frequency_buckets"]
    assert [row["row"] for row in told["rows"]] == [row["row"] for row in metrics(report)["rows"]]
    for name, row in zip(("logp_lm", "logp"), told["rows"], strict=True):
        targets = array(report, "scores.zarr", "target").tolist()
        want = by_frequency(counted, targets, array(report, "scores.zarr", name).tolist())
        assert row["nll"] == pytest.approx([nll for _, _, nll in want], rel=1e-12)
        assert row["perplexity"] == pytest.approx([math.exp(nll) for _, _, nll in want], rel=1e-12)
        assert [bucket["tokens"] for bucket in told["buckets"]] == [count for _, count, _ in want]
        for bucket, (number, _, _) in zip(told["buckets"], want, strict=True):
            least, most = RANGES[number]
            assert bucket["at_most"] == most
            assert bucket["more_than"] == (least - 1 if least else None)
    return [number for number, _, _ in want]


@pytest.mark.parametrize(("train", "held"), [(14, [4, 5]), (90, [3, 4]), (1100, [2, 3])])
def test_types_are_counted_in_the_training_split(store, train, held):
    tokens = small_tokens(store, lengths={"train": train, "test": 40})
    report = evaluated(store, small_model(store, tokens), CACHE)
    assert check(report, ids(tokens, "train")) == held
    told = metrics(report)["frequency_buckets"]
    assert (told["counted_in"], told["corpus"]) == ("train", tokens.reference)
    assert report.metrics["frequency_buckets"] == told


def test_types_are_counted_in_the_scored_split_on_request(store, model):
    report = evaluated(store, model, CACHE, split="valid", frequency="split")
    check(report, ids(model.input("tokens"), "valid"))
    assert metrics(report)["frequency_buckets"]["counted_in"] == "split"


def test_of_another_corpus_the_model_s_training_text_counts(store, model):
    other = small_tokens(store, seed=3, lengths={"train": 9, "test": 20})
    report = evaluated(store, model, CACHE, references={"tokens": other})
    check(report, ids(model.input("tokens"), "train"))


def test_without_a_training_split_nothing_is_counted_there(store):
    bare = small_model(store, small_tokens(store, lengths={"test": 20}))
    assert metrics(evaluated(store, bare, CACHE))["frequency_buckets"] is None
    report = evaluated(store, bare, CACHE, frequency="split")
    check(report, ids(bare.input("tokens"), "test"))
    other = small_tokens(store, lengths={"train": 30, "test": 20})
    report = evaluated(store, bare, CACHE, references={"tokens": other})
    check(report, ids(other, "train"))


def test_an_interrupted_evaluation_adds_up_the_same(store, model, monkeypatch):
    ran, original = [], EvaluateWork.run_shard

    def run_shard(self, job, work, shard):
        if len(ran) == 2:
            ran.append("")
            raise KeyboardInterrupt
        ran.append(shard.key)
        return original(self, job, work, shard)

    monkeypatch.setattr(EvaluateWork, "run_shard", run_shard)
    spec = "long:size=7,theta=0.5,lambda=0.3"
    with pytest.raises(KeyboardInterrupt):
        evaluated(store, model, spec)
    check(evaluated(store, model, spec), ids(model.input("tokens"), "train"))
    assert ran == ["score-000000", "score-000001", "", "score-000002"]


def test_of_last_words_their_tokens_are_counted_alone(store, tmp_path: Path):
    text = {
        "train": "the sea the sea by the mill\na b\n" * 3,
        "test": "by the sea\nthe old mill\nb b heron a\n",
    }
    for split, passages in text.items():
        (tmp_path / split).write_text(passages)
    files = {split: [str(tmp_path / split)] for split in text}
    tokens = make(
        Tokenize(),
        TokenizeConfig(tokenizer="word", min_count=1, documents="line"),
        files,
        store,
        Execution(),
    ).artifact
    small = small_model(
        store, tokens, model=ModelConfig().model | {"vocab_size": tokens.metrics["vocabulary_size"]}
    )
    report = evaluated(store, small, CACHE, score="last-word", reset="document")
    check(report, ids(tokens, "train"))
    assert sum(bucket["tokens"] for bucket in metrics(report)["frequency_buckets"]["buckets"]) == 3


def test_unknown_tokens_are_told_apart(store, tmp_path: Path):
    files = {split: [str(tmp_path / split)] for split in ("train", "test")}
    (tmp_path / "train").write_text("the sea the sea by the mill\na b\n" * 3)
    (tmp_path / "test").write_text("a heron by the sea\na heron by the gull\na heron by the mill\n")
    tokens = make(
        Tokenize(), TokenizeConfig(tokenizer="word", min_count=1), files, store, Execution()
    ).artifact
    small = small_model(
        store, tokens, model=ModelConfig().model | {"vocab_size": tokens.metrics["vocabulary_size"]}
    )
    report = evaluated(store, small, CACHE)
    unknown = array(report, "scores.zarr", "target") == tokens.metrics["unk_id"]
    plain, final = (
        -array(report, "scores.zarr", name).astype(float) for name in ("logp_lm", "logp")
    )
    made = metrics(report)
    assert (
        made["unknown_rate"]
        == tokens.metrics["splits"]["test"]["unknown_rate"]
        == unknown.mean()
        > 0
    )
    told = made["unknown_tokens"]
    assert told["tokens"] == unknown.sum() == 4
    for row, nll in zip(told["rows"], (plain, final), strict=False):
        assert row["perplexity_without"] == pytest.approx(math.exp(nll[~unknown].mean()), rel=1e-5)
    gain = (plain - final).sum()
    share = (plain - final)[unknown].sum() / gain if gain > 0 else None
    assert told["rows"][1]["share_of_gain"] == pytest.approx(share, rel=1e-4)


def test_ends_of_documents_are_told_apart_with_the_line_ends_before_them(store, tmp_path: Path):
    files = {split: [str(tmp_path / split)] for split in ("train", "test")}
    for path in files.values():
        Path(path[0]).write_text("the sea\n\na mill by\nthe gull\n")
    tokens = make(
        Tokenize(),
        TokenizeConfig(tokenizer="bpe", vocab_size=280, documents="line"),
        files,
        store,
        Execution(),
    ).artifact
    small = small_model(
        store, tokens, model=ModelConfig().model | {"vocab_size": tokens.metrics["vocabulary_size"]}
    )
    report = evaluated(store, small, CACHE)
    target, eos = array(report, "scores.zarr", "target"), tokens.metrics["eos_id"]
    ends = (target == eos) | (np.append(target[1:], -1) == eos)
    assert 2 * (target == eos).sum() == ends.sum() == 6  # each line ends in a line break
    plain, final = (
        -array(report, "scores.zarr", name).astype(float) for name in ("logp_lm", "logp")
    )
    told = metrics(report)["end_tokens"]
    assert (told["tokens"], told["rate"]) == (ends.sum(), ends.mean())
    for row, nll in zip(told["rows"], (plain, final), strict=False):
        assert row["perplexity_without"] == pytest.approx(math.exp(nll[~ends].mean()), rel=1e-5)


def test_where_documents_have_no_end_of_their_own_none_is_told(store, model):
    assert metrics(evaluated(store, model, CACHE))["end_tokens"] is None


@pytest.mark.parametrize("theta", ["1e4", "1e38"])
def test_a_row_that_diverges_is_told_and_harms_no_other(store, model, theta):
    """At the first θ memory takes all the probability there is, at the second its scores overflow."""
    report = metrics(evaluated(store, model, f"local:theta={theta},reader=joint"))
    plain, row = report["rows"]
    assert math.isfinite(plain["perplexity"]) and plain["diverged"] == (
        plain["perplexity"] > VOCABULARY
    )
    assert row["diverged"] and report["diverged"] and row["perplexity"] is None
    assert (row["nll"] is None) == (theta == "1e38")
    (curve,) = report["curves"]
    assert [point["perplexity"] for point in curve["points"]] == [None]
    buckets = report["frequency_buckets"]["rows"]
    assert all(map(math.isfinite, buckets[0]["perplexity"])) and None in buckets[1]["perplexity"]


def test_a_grid_that_diverges_in_part_is_drawn(store, model):
    made = evaluated(store, model, "local:theta=0/0.1/1e5/1e38,alpha=-2/0/2,reader=joint")
    report = metrics(made)
    assert report["memories"][0]["theta"] < 1e5 and math.isfinite(report["perplexity"])
    assert [None in line for line in report["grid"]["nll"]] == [False, False, False, True]
    assert (made.path / "figures/heat-map.svg").exists()


def test_a_grid_that_diverges_everywhere_does_not_end_the_report(store, model):
    plain, row = metrics(evaluated(store, model, "local:theta=1e37/1e38,alpha=0/2,reader=joint"))[
        "rows"
    ]
    assert math.isfinite(plain["perplexity"]) and row["diverged"]
