"""Memory of the recent past through the stage, against one window, one position and one pair at a
time.
"""

import math

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.evaluation.work import EvaluateWork
from tests.builders.limits import limit
from tests.stages.slow_evaluation import Slow, evaluated, metrics
from tests.stages.small_store import (
    REMEMBERING,
    VOCABULARY,
    ModelConfig,
    array,
    remembering,
    small_model,
    small_tokens,
)
from tests.stages.small_text import MEMFORMER, MEMORY_TOKENS, SRU, TRANSFORMER_XL

pytestmark = pytest.mark.usefixtures("short_shards")

TRANSFORMER = ModelConfig().model
LSTM = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 2, "width": 8, "dropout": 0.0}
ADAPTIVE = {"cutoffs": [3, 6], "factor": 2}


@pytest.fixture(scope="module")
def transformer(store: Store) -> Artifact:
    return small_model(store, small_tokens(store))


@pytest.fixture(scope="module")
def lstm(store: Store) -> Artifact:
    return small_model(store, small_tokens(store), model=LSTM)


READINGS = {
    "long:size=20,theta=0.5,lambda=0.3": {"size": 20, "lam": 0.3},
    "long:size=5,theta=0.5,lambda=0.3,scope=document": {"size": 5, "lam": 0.3, "scope": "document"},
    "local:theta=0.5,lambda=0.3,similarity=scaled-dot": {
        "local": True,
        "lam": 0.3,
        "kind": "scaled-dot",
    },
    "local+long:size=17,theta=0.5,reader=joint": {"local": True, "size": 17, "alpha": 0.0},
    "long:size=500,theta=0,lambda=0.3": {"size": 500, "lam": 0.3, "theta": 0.0},
    "long:size=1,temperature=4,lambda=0.6,similarity=l2": {
        "size": 1,
        "lam": 0.6,
        "theta": 0.25,
        "kind": "l2",
    },
    "long:size=9,theta=0.5,reader=joint,alpha=-1": {"size": 9, "alpha": -1.0},
    "local+long:size=3,theta=0.5,lambda=0.3": {"local": True, "size": 3, "lam": 0.3},
}
"""The first four differ in where what is read comes from."""


@pytest.mark.parametrize(
    ("backbone", "spec"),
    [
        *[("transformer", spec) for spec in READINGS],
        *[("lstm", spec) for spec in list(READINGS)[:4]],
    ],
)
def test_a_reading_is_what_its_equation_says(store, request, backbone, spec):
    model = request.getfixturevalue(backbone)
    scores = array(evaluated(store, model, spec), "scores.zarr", "logp")
    np.testing.assert_allclose(scores, Slow(model, "test").log_p(**READINGS[spec]), atol=2e-4)


@pytest.mark.parametrize("attention", REMEMBERING)
def test_caches_read_the_encodings_of_layers_that_remember(store, attention):
    """A cache, and TRIME's local and long memory in one softmax, on top of what layers keep."""
    model = small_model(store, small_tokens(store), model=remembering(attention))
    slow = Slow(model, "test")
    for spec, asked in [
        ("long:size=20,theta=0.5,lambda=0.3", {"size": 20, "lam": 0.3}),
        ("local+long:size=17,theta=0.5,reader=joint", {"local": True, "size": 17, "alpha": 0.0}),
    ]:
        report = evaluated(store, model, spec)
        np.testing.assert_allclose(
            array(report, "scores.zarr", "logp"), slow.log_p(**asked), atol=2e-4
        )


@pytest.mark.parametrize("backbone", ["transformer", "lstm"])
def test_windows_and_state_begin_anew_at_documents(store, request, backbone):
    model = request.getfixturevalue(backbone)
    slow = Slow(model, "test", documents=True)
    for spec, asked in [
        ("long:size=6,theta=0.5,lambda=0.3", {"size": 6, "lam": 0.3}),
        (
            "local+long:size=6,theta=0.5,lambda=0.3,scope=document",
            {"size": 6, "lam": 0.3, "local": True},
        ),
    ]:
        scope = "document" if "scope" in spec else "stream"
        report = evaluated(store, model, spec, reset="document")
        np.testing.assert_allclose(
            array(report, "scores.zarr", "logp"), slow.log_p(**asked, scope=scope), atol=2e-4
        )


OTHERS = {  # the first three are backbones with a state of their own
    "sru++": SRU,
    "memformer": MEMFORMER,
    "memory-tokens": MEMORY_TOKENS,
    "hashed-ngrams": TRANSFORMER_XL
    | {"lookup": {"name": "hashed-ngrams", "slots": 20, "layers": [1]}},
    "memory-plus": TRANSFORMER_XL
    | {"feed_forward": {"name": "memory-plus", "sub_keys": 4, "neighbors": 2}},
    "memsizer": TRANSFORMER | {"attention": {"name": "memsizer", "slots": 3}},
}


@pytest.mark.parametrize(
    ("layer", "reset"),
    [*[(layer, "none") for layer in list(OTHERS)[:3]], *[(layer, "document") for layer in OTHERS]],
)
def test_caches_read_states_that_go_on_or_begin_anew_at_documents(store, layer, reset):
    model = small_model(
        store, small_tokens(store), model=OTHERS[layer] | {"vocab_size": VOCABULARY}
    )
    report = evaluated(store, model, "local+long:size=17,theta=0.5,reader=joint", reset=reset)
    want = Slow(model, "test", documents=reset == "document").log_p(
        size=17, theta=0.5, local=True, alpha=0.0
    )
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=2e-4)


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ("local:theta=0.5,lambda=0.3", {"local": True, "lam": 0.3}),
        ("local+long:size=12,theta=0.5,lambda=0.3", {"local": True, "size": 12, "lam": 0.3}),
        ("long:size=12,theta=0.5,lambda=0.3", {"size": 12, "lam": 0.3}),
    ],
)
def test_in_overlapping_windows_local_keys_are_those_of_the_window(store, transformer, spec, asked):
    report = evaluated(store, transformer, spec, stride=3)
    want = Slow(transformer, "test", stride=3).log_p(**asked)
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=2e-4)


def test_the_best_of_the_grid_is_used_and_sizes_are_tuned_by_themselves(store, transformer):
    spec = "long:size=2/10/40,theta=0/0.3/1,lambda=0.1/0.5"
    report = metrics(evaluated(store, transformer, spec))
    valid, test = Slow(transformer, "valid"), Slow(transformer, "test")
    tried = {
        (size, theta, lam): -valid.log_p(size=size, theta=theta, lam=lam).mean()
        for size in (2, 10, 40)
        for theta in (0.0, 0.3, 1.0)
        for lam in (0.1, 0.5)
    }
    best = min(tried, key=tried.get)
    (memory,) = report["memories"]
    assert (memory["size"], memory["theta"], memory["lambda"]) == best
    cache, unigram = report["curves"]
    assert (cache["row"], cache["over"], unigram["row"]) == (
        "neural-cache",
        "size",
        "unigram-cache",
    )
    for curve, thetas in ((cache, (0.0, 0.3, 1.0)), (unigram, (0.0,))):
        for point in curve["points"]:
            theta, lam = min(
                ((theta, lam) for theta in thetas for lam in (0.1, 0.5)),
                key=lambda pair, size=point["size"]: tried[size, *pair],
            )
            assert (point["theta"], point["lambda"]) == (theta, lam)
            want = -test.log_p(size=point["size"], theta=theta, lam=lam).mean()
            assert math.log(point["perplexity"]) == pytest.approx(want, abs=1e-4)
    assert [row["row"] for row in report["rows"]] == ["plain", "neural-cache", "unigram-cache"]


def test_readings_too_many_to_try_together_are_tuned_in_turn(store, transformer, monkeypatch):
    first, second = (
        "long:size=30,theta=0/0.5/1,lambda=0.1/0.4",
        "long:size=4,theta=0.5,lambda=0.05/0.2/0.6",
    )
    whole = metrics(evaluated(store, transformer, first, second))
    limit(monkeypatch, points_together=1)
    in_turn = metrics(evaluated(store, transformer, first + ",scope=stream", second, split="valid"))
    again = metrics(
        evaluated(store, transformer, first, second, split="valid", tune_split="valid", context=8)
    )
    assert in_turn["memories"] == again["memories"]
    assert [m["lambda"] for m in in_turn["memories"]] == [m["lambda"] for m in whole["memories"]]
    assert [m["theta"] for m in in_turn["memories"]] == [m["theta"] for m in whole["memories"]]


def test_a_disk_without_room_for_tuning_in_turn_is_found_beforehand(
    store, transformer, monkeypatch
):
    limit(monkeypatch, points_together=1)
    told, memory = (
        [],
        ("long:size=30,theta=0/0.5/1,lambda=0.2/0.4", "long:size=4/9,theta=0.5,lambda=0.1"),
    )
    monkeypatch.setattr(Draft, "expect", lambda draft, total: told.append(total))
    evaluated(store, transformer, *memory, context=6, save_token_scores=False)
    evaluated(store, transformer, memory[0], context=6, save_token_scores=False)
    sums = [16 * rows * 4 for rows in (5, 4)]  # of four documents, for intervals
    assert told == [4 * 40 * (2 + 3 * 3 + 3 * 2) + sums[0], sums[1]]


@pytest.mark.parametrize("backbone", ["transformer", "lstm"])
def test_an_interrupted_evaluation_goes_on_with_the_history_it_left(
    store, tmp_path, request, backbone, monkeypatch
):
    model = request.getfixturevalue(backbone)
    spec, original = "long:size=25,theta=0.2/0.7,lambda=0.2/0.4", EvaluateWork.run_shard
    budget, ran = [3], []

    def run_shard(self, job, work, shard):
        if not budget[0]:
            raise KeyboardInterrupt
        budget[0] -= 1
        ran.append(shard.key)
        return original(self, job, work, shard)

    whole = evaluated(store, model, spec)
    bytes_of = {
        name: (whole.path / name).read_bytes()
        for name in whole.manifest.files
        if name.startswith("scores")
    }
    store.remove(whole.reference)
    monkeypatch.setattr(EvaluateWork, "run_shard", run_shard)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            evaluated(store, model, spec)
        budget[0] = 2
    budget[0] = 100
    resumed = evaluated(store, model, spec)
    assert len(ran) == len(set(ran))
    assert {name: (resumed.path / name).read_bytes() for name in bytes_of} == bytes_of
    assert not [name for name in resumed.manifest.files if name.startswith("scratch")]


@pytest.mark.parametrize(("backbone", "tied"), [(TRANSFORMER, True), (LSTM, False)])
def test_an_adaptive_softmax_is_read_with_the_normalizer_of_its_head(store, backbone, tied):
    model = small_model(store, small_tokens(store), model=backbone | ADAPTIVE | {"tied": tied})
    slow = Slow(model, "test")
    for spec, asked in [
        ("long:size=9,theta=0.5,reader=joint,alpha=-1", {"size": 9, "alpha": -1.0}),
        ("local+long:size=12,theta=0.5,lambda=0.4", {"local": True, "size": 12, "lam": 0.4}),
    ]:
        report = evaluated(store, model, spec)
        np.testing.assert_allclose(array(report, "scores.zarr", "log_z"), slow.log_z, atol=2e-4)
        np.testing.assert_allclose(
            array(report, "scores.zarr", "logp"), slow.log_p(**asked), atol=2e-4
        )


def test_lists_of_numbers_have_no_order(store, transformer):
    rising, falling = (
        "long:size=5/20,theta=0/0.5,lambda=0.01/0.02/0.9",
        "long:size=20/5,theta=0.5/0,lambda=0.9/0.01/0.02",
    )
    assert evaluated(store, transformer, rising).id == evaluated(store, transformer, falling).id


@pytest.mark.parametrize(
    "spec", ["neural-cache", "local+long:size=tune,reader=joint,theta=tune,alpha=tune"]
)
def test_splits_of_one_token_are_scored_as_the_model_alone_does(store, spec):
    model = small_model(store, small_tokens(store, lengths={"train": 90, "valid": 1, "test": 1}))
    report = metrics(evaluated(store, model, spec))
    assert report["nll"] == pytest.approx(report["rows"][0]["nll"])


def test_a_tuning_split_without_a_token_is_refused(store):
    model = small_model(store, small_tokens(store, lengths={"train": 90, "valid": 0, "test": 35}))
    with pytest.raises(ArtifactError, match="valid"):
        evaluated(store, model, "neural-cache")


def test_bf16_carries_the_state_of_an_lstm_from_shard_to_shard(store, lstm):
    spec = "long:size=9,theta=0.5,lambda=0.3"
    low, full = (
        evaluated(store, lstm, spec, precision=precision) for precision in ("bf16", "fp32")
    )
    np.testing.assert_allclose(
        array(low, "scores.zarr", "logp"), array(full, "scores.zarr", "logp"), atol=0.2
    )


def test_the_segments_of_a_stream_matter_to_local_memory_alone(store, lstm):
    report = evaluated(store, lstm, "local:theta=0.5,lambda=0.3", context=5)
    want = Slow(lstm, "test", context=5).log_p(local=True, lam=0.3)
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=2e-4)
    with pytest.raises(UsageError, match="leave --context and --stride out"):
        evaluated(store, lstm, "long:size=5,lambda=0.1", context=5)


def test_what_a_backbone_does_not_have_is_refused(store, lstm):
    with pytest.raises(UsageError, match="has no key 'ffn-input'; it has: hidden"):
        evaluated(store, lstm, "long:size=5,lambda=0.1,key=ffn-input")
    with pytest.raises(UsageError, match="as one stream: leave --context and --stride out"):
        evaluated(store, lstm, stride=2)
