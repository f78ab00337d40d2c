"""Scoring last words alone through the stage: real text, every row against whole distributions."""

import math
from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
import pytest
from tokenizers import Tokenizer

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluation.work import EvaluateWork
from stages.tokenize import Tokenize, TokenizeConfig
from tests.builders.limits import limit
from tests.oracles import last_word as words_oracle
from tests.oracles import neural_cache as oracle
from tests.oracles.text import documents, word_vocabulary
from tests.stages.slow_evaluation import Asked, Slow, evaluated, metrics
from tests.stages.small_store import ModelConfig, array, small_model

SHARD = 16
FILLING = "a b " * 20
TEXT = {
    "train": [
        "by the old mill the sea sea sea",
        "we saw the sea by the mill",
        "a b a b",
        "the mill by the sea",
    ],
    "valid": [
        "oh sea sea sea",
        "the old mill the old mill",
        f"{FILLING}by the mill",
        "we saw a heron",
        "sea sea sea",
    ],
    "test": [
        "mill mill mill mill",
        f"{FILLING}the antediluvian",
        "",
        "we saw the mill saw the mill",
        "zzz zzz zzz zz",
    ],
}
TOKENIZERS = {
    "word": {"tokenizer": "word", "vocab_size": 10},
    "bpe": {"tokenizer": "bpe", "vocab_size": 261},
}
BACKBONES = {
    "transformer": ModelConfig().model,
    "lstm": {"backbone": "lstm", "layers": 2, "width": 8, "dropout": 0.0},
}
ADAPTIVE = {"cutoffs": [3, 6], "factor": 2}
JOINT = "long:size=4/30,theta=0/1,reader=joint,alpha=-1/2"
JOINT_GRID = [
    Asked(theta, size, alpha=alpha)
    for theta, size, alpha in product((0.0, 1.0), (4, 30), (-1.0, 2.0))
]
UNION = "local+long:size=3/20,theta=0.5/2,lambda=0.3/0.9,scope=document"
UNION_GRID = [
    Asked(theta, size, local=True, scope="document", lam=lam)
    for theta, size, lam in product((0.5, 2.0), (3, 20), (0.3, 0.9))
]
LATER = "long:size=8,theta=3,lambda=0.1/0.5,scope=document"
LATER_GRID = [Asked(3.0, 8, scope="document", lam=lam) for lam in (0.1, 0.5)]


@pytest.fixture(scope="module")
def tokens(store: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The text, a passage a line, by tokenizer."""
    folder = tmp_path_factory.mktemp("text")
    for split, passages in TEXT.items():
        (folder / f"{split}.txt").write_text(_text(passages))
    files = {split: [str(folder / f"{split}.txt")] for split in TEXT}
    return {
        name: make(
            Tokenize(), TokenizeConfig(documents="line", **settings), files, store, Execution()
        ).artifact
        for name, settings in TOKENIZERS.items()
    }


@pytest.fixture(autouse=True)
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, tokens_per_shard=SHARD, chunk_entries={"cpu": 40}, min_chunk_positions=3)


def _text(passages: list[str]) -> str:
    return "".join(f"{passage}\n" for passage in passages)


def model_of(store: Store, tokens: Artifact, backbone: str, **settings) -> Artifact:
    size = {"vocab_size": tokens.metrics["vocabulary_size"]}
    return small_model(store, tokens, model=BACKBONES[backbone] | size | settings)


def shards(tokens: Artifact, split: str) -> int:
    return math.ceil(tokens.metrics["splits"][split]["tokens"] / SHARD)


def last_words(tokens: Artifact, split: str) -> list[tuple[int, int]]:
    """Tokens of the last word of every line that has one, from the text itself."""
    return [span for span in _spans(tokens, split) if span is not None]


def _spans(tokens: Artifact, split: str) -> Iterator[tuple[int, int] | None]:
    ids = array(tokens, "tokens.zarr", f"{split}/ids").tolist()
    offsets = array(tokens, "tokens.zarr", f"{split}/doc_offsets").tolist()
    tokenizer = Tokenizer.from_file(str(tokens.path / "tokenizer.json"))
    for passage, (start, stop) in zip(
        documents(_text(TEXT[split]), "line"), pairwise(offsets), strict=True
    ):
        if tokens.metrics["tokenizer"] == "word":
            found = (n - 1, n) if (n := len(passage.split())) else None
        else:
            pieces = [
                tokenizer.decode([i]).encode()
                for i in ids[start:stop]
                if i != tokens.metrics["eos_id"]
            ]
            found = words_oracle.span_by_prefixes(passage, pieces)
        yield None if found is None else (start + found[0], start + found[1])


def check_rows(report: Artifact, slow: Slow, spans: list[tuple[int, int]]) -> list[float]:
    """Compare every row's figures with those of whole distributions; the accuracies."""
    told = metrics(report)
    for row in told["rows"]:
        readings = [Asked.told(memory) for memory in row["memories"]]
        dense = {t: slow.distribution(t, *readings) for span in spans for t in range(*span)}
        want = words_oracle.score(dense, slow.ids.tolist(), spans)
        assert (told["tokens"], told["words"]) == (want["tokens"], want["words"])
        assert row["nll"] == pytest.approx(want["nll"] / want["tokens"], abs=2e-4)
        assert row["perplexity"] == pytest.approx(math.exp(row["nll"]))
        assert row["word_perplexity"] == pytest.approx(
            math.exp(row["nll"] * want["tokens"] / want["words"])
        )
        assert row["accuracy"] == pytest.approx(want["accuracy"])
    return [row["accuracy"] for row in told["rows"]]


def check_scores(report: Artifact, slow: Slow, spans: list[tuple[int, int]]) -> None:
    """Compare `scores.zarr`, one row a scored token, with whole distributions."""
    (asked,) = (Asked.told(memory) for memory in metrics(report)["memories"])
    rows = [t for span in spans for t in range(*span)]
    targets = slow.ids[rows]
    final, alone = (
        [slow.distribution(t, *read)[slow.ids[t]] for t in rows] for read in ([asked], [])
    )
    memory = [oracle.cache(slow.entries(t, asked), slow.scores.shape[1]) for t in rows]
    p_mem = [0.0 if p is None else p[target] for p, target in zip(memory, targets, strict=True)]
    assert array(report, "scores.zarr", "target").tolist() == targets.tolist()
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), np.log(final), atol=2e-4)
    np.testing.assert_allclose(array(report, "scores.zarr", "logp_lm"), np.log(alone), atol=2e-4)
    np.testing.assert_allclose(array(report, "scores.zarr", "log_z"), slow.log_z[rows], atol=2e-4)
    np.testing.assert_allclose(
        np.exp(array(report, "scores.zarr", "logp_memory")[:, 0]), p_mem, atol=2e-4
    )


def nats(slow: Slow, spans: list[tuple[int, int]], *readings: Asked) -> float:
    """Of all last words."""
    return -sum(
        math.log(slow.distribution(t, *readings)[slow.ids[t]])
        for span in spans
        for t in range(*span)
    )


def test_the_text_has_what_is_hard(tokens):
    spans = {name: last_words(made, "test") for name, made in tokens.items()}
    assert any(start // SHARD != (stop - 1) // SHARD for start, stop in spans["bpe"])
    for name, made in tokens.items():
        scored = {t // SHARD for span in spans[name] for t in range(*span)}
        assert len(scored) < shards(made, "test")
        assert len(spans[name]) == len(TEXT["test"]) - 1


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize(
    ("tokenizer", "spec", "settings"),
    [
        ("bpe", "long:size=12,theta=2,reader=joint,alpha=2", {}),
        (
            "word",
            "local+long:size=12,theta=1,lambda=0.9,scope=document,similarity=l2",
            {"reset": "document"},
        ),
    ],
)
def test_last_words_are_what_whole_distributions_say(
    store, tokens, backbone, tokenizer, spec, settings
):
    model = model_of(store, tokens[tokenizer], backbone)
    spans = last_words(tokens[tokenizer], "test")
    report = evaluated(store, model, spec, score="last-word", **settings)
    slow = Slow(model, "test", documents="reset" in settings)
    accuracies = check_rows(report, slow, spans)
    check_scores(report, slow, spans)
    assert 0 < max(accuracies) < 1
    known = word_vocabulary(_text(TEXT["train"]), 10)
    unknown = sum(words_oracle.last_word(passage) not in (None, *known) for passage in TEXT["test"])
    assert unknown == 2
    assert metrics(report)["unknown_words"] == (unknown if tokenizer == "word" else 0)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize(
    ("tokenizer", "spec", "points", "settings"),
    [
        ("word", JOINT, JOINT_GRID, {}),
        ("bpe", UNION, UNION_GRID, {"reset": "document"}),
    ],
)
def test_last_words_alone_are_tuned_on(store, tokens, backbone, tokenizer, spec, points, settings):
    model = model_of(store, tokens[tokenizer], backbone)
    report = evaluated(store, model, spec, score="last-word", **settings)
    told, by_document = metrics(report), "reset" in settings
    valid, spans = (
        Slow(model, "valid", documents=by_document),
        last_words(tokens[tokenizer], "valid"),
    )
    tried = {point: nats(valid, spans, point) for point in points}
    assert Asked.told(told["memories"][0]) == min(tried, key=tried.get)
    scored = sum(stop - start for start, stop in spans)
    grid = told["grid"]
    assert grid["tokens"] == scored
    assert grid["plain_nll"] == pytest.approx(nats(valid, spans) / scored, abs=2e-4)
    assert min(map(min, grid["nll"])) == pytest.approx(min(tried.values()) / scored, abs=2e-4)
    check_rows(
        report, Slow(model, "test", documents=by_document), last_words(tokens[tokenizer], "test")
    )


@pytest.mark.parametrize("backbone", BACKBONES)
def test_readings_tuned_in_turn_leave_nothing_to_gain_from_one_of_them(
    store, tokens, backbone, monkeypatch
):
    limit(monkeypatch, points_together=1)
    model = model_of(store, tokens["word"], backbone)
    report = evaluated(store, model, JOINT, LATER, score="last-word")
    valid, spans = Slow(model, "valid"), last_words(tokens["word"], "valid")
    _, both, *alone = ([Asked.told(m) for m in row["memories"]] for row in metrics(report)["rows"])
    end = nats(valid, spans, *both)
    assert all(nats(valid, spans, one, both[1]) > end - 1e-3 for one in JOINT_GRID)
    assert all(nats(valid, spans, both[0], one) > end - 1e-3 for one in LATER_GRID)
    for (one,), grid in zip(alone, (JOINT_GRID, LATER_GRID), strict=True):
        assert nats(valid, spans, one) == pytest.approx(
            min(nats(valid, spans, point) for point in grid), abs=1e-3
        )
    check_rows(report, Slow(model, "test"), last_words(tokens["word"], "test"))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_likeliest_word_of_an_adaptive_softmax(store, tokens, backbone):
    model = model_of(store, tokens["word"], backbone, **ADAPTIVE)
    slow, spans = Slow(model, "test"), last_words(tokens["word"], "test")
    joint = "long:size=12,theta=0.1,reader=joint,alpha="
    for spec in (f"{joint}1", f"{joint}-2", "local+long:size=9,theta=0.5,lambda=0.5"):
        report = evaluated(store, model, spec, score="last-word")
        check_rows(report, slow, spans)
        check_scores(report, slow, spans)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_an_interrupted_evaluation_of_last_words_goes_on(store, tokens, backbone, monkeypatch):
    model, original, budget = model_of(store, tokens["bpe"], backbone), EvaluateWork.run_shard, [0]

    def run_shard(self, job, work, shard):
        if not budget[0]:
            raise KeyboardInterrupt
        budget[0] -= 1
        return original(self, job, work, shard)

    def run() -> Artifact:
        return evaluated(
            store,
            model,
            "local+long:size=25,theta=0.5/1,lambda=0.4",
            score="last-word",
            reset="document",
        )

    whole = run()
    told, scores = metrics(whole), array(whole, "scores.zarr", "logp")
    store.remove(whole.reference)
    monkeypatch.setattr(EvaluateWork, "run_shard", run_shard)
    for budget[0] in (3, shards(tokens["bpe"], "valid")):
        with pytest.raises(KeyboardInterrupt):
            run()
    budget[0] = 1000
    resumed = run()
    np.testing.assert_allclose(array(resumed, "scores.zarr", "logp"), scores, atol=1e-5)
    for name in ("accuracy", "words", "tokens", "unknown_words"):
        assert metrics(resumed)[name] == told[name]
    assert metrics(resumed)["perplexity"] == pytest.approx(told["perplexity"], rel=1e-5)
