"""Evaluating models whose gate reads stored neighbours."""

import json
import math
from collections.abc import Mapping

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.diagnostics import options as passages
from stages.errors import ArtifactError, UsageError
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.work import EvaluateWork
from stages.index import BuildIndex
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.search.config import IndexConfig
from tests.oracles import knn_lm
from tests.stages.artifacts.toy import restate
from tests.stages.slow_evaluation import Slow, evaluated, metrics
from tests.stages.small_store import (
    REMEMBERING,
    VOCABULARY,
    array,
    remembering,
    small_model,
    small_tokens,
)

pytestmark = pytest.mark.usefixtures("short_shards")

SIZES = {
    "vocab_size": VOCABULARY,
    "layers": 1,
    "width": 8,
    "heads": 2,
    "ffn_width": 16,
    "dropout": 0.0,
}
TRANSFORMER = {"backbone": "transformer", "max_positions": 16, "positions": "learned", **SIZES}
TRANSFORMER_XL = {"backbone": "transformer-xl", "segment_length": 8, "mem_length": 6, **SIZES}
ADAPTIVE = {"cutoffs": (4, 8), "factor": 2}
MODELS = {
    "transformer": {**TRANSFORMER, "gate": "vector"},
    "transformer, adaptive": {**TRANSFORMER, **ADAPTIVE, "gate": "vector"},
    "transformer-xl": {**TRANSFORMER_XL, "gate": "scalar"},
    "transformer-xl, adaptive": {**TRANSFORMER_XL, **ADAPTIVE, "gate": "vector"},
    **{name: {**remembering(name), "gate": "vector"} for name in REMEMBERING},
}
MEMORY = {"method": "spalm", "k": 3, "only_gate": False}


@pytest.fixture(scope="module")
def tokens(store: Store) -> Artifact:
    return small_tokens(store)


def made(store: Store, stage, config, source: Artifact, **references: Artifact) -> Artifact:
    given = {"source": source.reference} | {
        role: artifact.reference for role, artifact in references.items()
    }
    return make(stage, config, given, store, Execution()).artifact


@pytest.fixture(scope="module")
def encoder(store: Store, tokens: Artifact) -> Artifact:
    return small_model(store, tokens, seed=5)


@pytest.fixture(scope="module")
def index(store: Store, encoder: Artifact) -> Artifact:
    datastore = made(store, BuildDatastore(), DatastoreConfig(key="hidden"), encoder)
    return made(store, BuildIndex(), IndexConfig(index="flat", metric="ip"), datastore)


def found(store: Store, index: Artifact, **settings) -> Artifact:
    references = {role: settings.pop(role) for role in ("tokens",) if role in settings}
    return made(
        store, PrecomputeNeighbors(), NeighborsConfig(**{"k": 4, **settings}), index, **references
    )


@pytest.fixture(scope="module")
def neighbors(store: Store, index: Artifact) -> Artifact:
    return found(store, index)


def gated_model(
    store: Store, tokens: Artifact, neighbors: Artifact, name: str = "transformer-xl"
) -> Artifact:
    return small_model(
        store, tokens, neighbors=neighbors, model=MODELS[name], method="spalm", memory=MEMORY
    )


@pytest.fixture(scope="module")
def models(store: Store, tokens: Artifact, neighbors: Artifact) -> Mapping[str, Artifact]:
    return {name: gated_model(store, tokens, neighbors, name) for name in MODELS}


@pytest.fixture(scope="module")
def model(models: Mapping[str, Artifact]) -> Artifact:
    return models["transformer-xl"]


def tokens_of(neighbors: Artifact, split: str, k: int) -> np.ndarray:
    """Tokens of stored neighbours, row by row."""
    values = array(neighbors.input("index").input("datastore"), "datastore.zarr", "values")
    ids = array(neighbors, "neighbors.zarr", f"{split}/ids")[:, :k]
    return np.array(
        [[-1 if row < 0 else values[row] for row in near] for near in ids], np.int64
    ).reshape(len(ids), k)


def plain_log_p(slow: Slow) -> np.ndarray:
    return np.array([math.log(slow.distribution(t)[target]) for t, target in enumerate(slow.ids)])


@pytest.mark.parametrize(
    ("split", "name"),
    [("train", "transformer"), ("train", "transformer-xl"), *[("test", name) for name in MODELS]],
)
def test_the_gate_reads_what_float64_makes_of_stored_neighbours(
    store, models, neighbors, name, split
):
    report = evaluated(store, models[name], split=split, exclude="self", gate_k=(3, 0, 1, 4))

    slow = {
        k: Slow(models[name], split, neighbors=tokens_of(neighbors, split, k)) for k in (1, 3, 4)
    }
    log_p = {k: plain_log_p(one) for k, one in slow.items()} | {
        0: plain_log_p(Slow(models[name], split))
    }
    scores = {
        column: array(report, "scores.zarr", column)
        for column in ("logp", "logp_lm", "log_z", "gate")
    }
    np.testing.assert_allclose(scores["logp_lm"], log_p[3], atol=1e-4)
    np.testing.assert_array_equal(scores["logp"], scores["logp_lm"])
    np.testing.assert_allclose(scores["gate"], slow[3].gate, atol=1e-5)
    if "adaptive" not in name:
        np.testing.assert_allclose(scores["log_z"], slow[3].log_z, atol=1e-4)
    gate = metrics(report)["gate"]
    assert gate["neighbors"] == 3
    assert gate["mean"] == pytest.approx(slow[3].gate.mean(), abs=1e-6)
    told = {point["neighbors"]: point["perplexity"] for point in gate["by_neighbors"]}
    assert told == pytest.approx(
        {k: math.exp(-one.mean()) for k, one in sorted(log_p.items())}, rel=1e-4
    )
    assert told[3] == pytest.approx(metrics(report)["perplexity"], rel=1e-6)
    right = {
        k: (tokens_of(neighbors, split, k) == slow[3].ids[:, None]).any(1).mean() for k in (1, 2, 4)
    }
    assert {int(k): share for k, share in gate["neighbors_right"].items()} == pytest.approx(right)


def test_in_what_order_other_numbers_of_neighbours_are_named_does_not_count(store, model):
    config = evaluated(store, model, gate_k=(2, 4, 0)).config
    assert config["gate_k"] == [2, 0, 4]
    assert evaluated(store, model, gate_k=(2, 0, 4, 2, 4)).config == config
    assert evaluated(store, model, gate_k=(4, 0, 2)).config["gate_k"] == [4, 0, 2]


def test_histograms_count_every_gate_of_the_split(store, models):
    gate = metrics(evaluated(store, models["transformer"]))["gate"]
    scored = array(evaluated(store, models["transformer"]), "scores.zarr", "gate")

    histogram = gate["histogram"]
    assert histogram["tokens"] == np.histogram(scored, histogram["edges"])[0].tolist()
    assert sum(histogram["values"]) == 35 * 8
    centres = (np.array(histogram["edges"][1:]) + histogram["edges"][:-1]) / 2
    assert np.average(centres, weights=histogram["values"]) == pytest.approx(gate["mean"], abs=0.01)


def test_the_gate_alone_is_the_default(store, model, neighbors):
    default, none, named = (
        evaluated(store, model),
        evaluated(store, model, "none"),
        evaluated(store, model, references={"neighbors": neighbors}),
    )

    assert default.id == none.id == named.id
    assert default.config["gate_k"] == [3]
    assert [row["row"] for row in metrics(default)["rows"]] == ["spalm", "spalm, gate shut"]
    assert metrics(default)["read"]["gate_neighbors"] == neighbors.reference


KNN_LM = "external:k=4,lambda=0.3,temperature=2"


@pytest.mark.parametrize("named", [(), ("neighbors",), ("index",), ("index", "neighbors")])
def test_knn_lm_reads_on_top_of_the_gate(store, index, model, encoder, neighbors, named):
    """Neighbours that are named beside an index are the gate's alone."""
    others = found(store, index, k=3, queries=("test",)) if len(named) == 2 else neighbors
    given = {"index": index, "neighbors": others}
    report = evaluated(store, model, KNN_LM, references={role: given[role] for role in named})

    assert metrics(report)["read"]["gate_neighbors"] == others.reference
    assert ("neighbors" in metrics(report)["read"]) == ("index" not in named)
    gated = plain_log_p(Slow(model, "test", neighbors=tokens_of(neighbors, "test", 3)))
    searching = Slow(encoder, "test")
    datastore = index.input("datastore")
    keys, values = (array(datastore, "datastore.zarr", name) for name in ("keys", "values"))
    want = []
    for t, target in enumerate(searching.ids):
        rows, distances = knn_lm.neighbours(
            keys, searching.as_scored[t].astype(keys.dtype), 4, "ip", ()
        )
        p_mem = knn_lm.memory_probability(distances, values[rows], target, 2.0, "ip")
        want.append(knn_lm.log_prob(math.exp(gated[t]), p_mem, 0.3))
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=1e-3)
    np.testing.assert_allclose(array(report, "scores.zarr", "logp_lm"), gated, atol=1e-4)


@pytest.mark.parametrize("key", ["hidden", "ffn-input"])
def test_values_of_a_datastore_that_gate_and_readings_share_are_in_memory_once(
    store, index, model, encoder, monkeypatch, key
):
    stored = made(store, BuildDatastore(), DatastoreConfig(key=key), encoder)
    searched = made(store, BuildIndex(), IndexConfig(index="flat", metric="ip"), stored)
    opened, original = [], EvaluateWork.open
    monkeypatch.setattr(
        EvaluateWork, "open", lambda *of: opened.append(original(*of)) or opened[-1]
    )
    evaluated(store, model, KNN_LM.replace("0.3", "0.35"), references={"index": searched})
    gate, values = (
        opened[0].reader.hidden_memory,
        opened[0].reader.external.datastore.values.numpy(),
    )
    shared = searched.input("datastore").id == index.input("datastore").id
    assert np.shares_memory(gate.values, values) == shared
    np.testing.assert_array_equal(
        gate.values, array(index.input("datastore"), "datastore.zarr", "values")
    )


@pytest.mark.parametrize("reader", ["lam", "alpha"])
def test_keys_of_memory_are_as_before_the_gate(store, model, neighbors, reader):
    reading = {
        "lam": "long:size=12,theta=0.4,lambda=0.2",
        "alpha": "long:size=12,theta=0.4,reader=joint,alpha=0.1",
    }
    report = evaluated(store, model, reading[reader])

    slow = Slow(model, "test", neighbors=tokens_of(neighbors, "test", 3))
    want = slow.log_p(theta=0.4, size=12, **{reader: {"lam": 0.2, "alpha": 0.1}[reader]})
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=3e-4)


def test_the_likeliest_token_is_that_of_the_gated_state(store, model, neighbors):
    report = metrics(evaluated(store, model, score="last-word"))

    slow = Slow(model, "test", neighbors=tokens_of(neighbors, "test", 3))
    best = slow.scores.argmax(1) == slow.ids
    words = [
        max(t for t in range(a, b) if slow.ids[t])
        for a, b in zip(slow.offsets, slow.offsets[1:], strict=False)
    ]
    assert report["accuracy"] == pytest.approx(np.mean([best[t] for t in words]))
    assert report["gate"]["mean"] == pytest.approx(slow.gate[words].mean(), abs=1e-6)
    assert report["gate"]["by_neighbors"][-1]["perplexity"] == pytest.approx(report["perplexity"])


def test_the_same_weights_with_the_gate_shut_stand_in_the_table(store, model, neighbors):
    report = metrics(evaluated(store, model, "long:size=12,theta=0.4,lambda=0.2"))

    nobody = np.full_like(tokens_of(neighbors, "test", 3), -1)
    slow, shut = Slow(model, "test", neighbors=nobody), report["rows"][-1]
    assert shut["row"] == "spalm, gate shut"
    assert shut["nll"] == pytest.approx(
        (slow.log_z - slow.scores[np.arange(len(slow.ids)), slow.ids]).mean(), abs=1e-5
    )
    assert shut["control"]["perplexity"] == report["trigram"]["perplexity"]
    assert (
        report["perplexity"] == report["rows"][1]["perplexity"]
    )  # the main row is that of the memory on top


def test_a_longer_memory_can_be_carried_at_test(store, model, neighbors):
    report = evaluated(store, model, mem_length=11, context=4)

    slow = Slow(model, "test", context=4, mem_length=11, neighbors=tokens_of(neighbors, "test", 3))
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), plain_log_p(slow), atol=1e-4)
    assert report.config["mem_length"] == 11
    assert evaluated(store, model).config["mem_length"] == 6


def test_numbers_are_tuned_on_gated_scores(store, model, neighbors):
    grid = "external:k=4,lambda=0.1/0.3/0.6,temperature=2"
    tuned = metrics(evaluated(store, model, grid))

    valid = {
        w: metrics(evaluated(store, model, grid.replace("0.1/0.3/0.6", w), split="valid"))
        for w in ("0.1", "0.6")
    }
    sums = dict(zip(tuned["grid"]["weights"], tuned["grid"]["nll"][0], strict=True))
    assert sums[0.1] == pytest.approx(valid["0.1"]["nll"], abs=1e-5)
    assert sums[0.6] == pytest.approx(valid["0.6"]["nll"], abs=1e-5)
    assert tuned["grid"]["plain_nll"] == pytest.approx(valid["0.1"]["rows"][0]["nll"], abs=1e-5)


def test_a_passage_is_shown_with_its_neighbours(store, model, neighbors):
    report = evaluated(store, model, passage="13:20")

    passage = json.loads(report.file("passage.json").read_text())
    scores, ids = (
        array(report, "scores.zarr", "logp"),
        array(model.input("tokens"), "tokens.zarr", "test/ids"),
    )
    words = ["<eos>", "<unk>", *(f"small-{id}" for id in range(2, VOCABULARY))]
    near = tokens_of(neighbors, "test", 3)
    assert (passage["split"], passage["start"], passage["stop"]) == ("test", 13, 20)
    assert [token["text"] for token in passage["tokens"]] == [words[id] for id in ids[13:20]]
    told = [token["probability"] for token in passage["tokens"]]
    np.testing.assert_allclose(told, np.exp(scores[13:20]), rtol=1e-5)
    gates = array(report, "scores.zarr", "gate")[13:20]
    np.testing.assert_allclose(
        [np.mean(token["gate"]) for token in passage["tokens"]], gates, atol=1e-5
    )
    assert [token["neighbors"] for token in passage["tokens"]] == [
        [words[id] for id in row] for row in near[13:20]
    ]
    drawn = {file for file in report.manifest.files if file.startswith("figures/")}
    assert drawn == {
        f"figures/gate-{name}.{kind}"
        for name in ("histogram", "accuracy", "passage")
        for kind in ("svg", "png", "csv")
    }


def test_an_interrupted_evaluation_counts_every_gate_once(store, model, monkeypatch):
    whole = metrics(evaluated(store, model, gate_k=(2, 4), split="valid"))
    passage = evaluated(store, model, gate_k=(2, 4), split="valid").file("passage.json").read_text()
    store.remove(evaluated(store, model, gate_k=(2, 4), split="valid").reference)
    original, budget = EvaluateWork.run_shard, [1]

    def run_shard(self, job, work, shard):
        if not budget[0]:
            raise KeyboardInterrupt
        budget[0] -= 1
        return original(self, job, work, shard)

    monkeypatch.setattr(EvaluateWork, "run_shard", run_shard)
    with pytest.raises(KeyboardInterrupt):
        evaluated(store, model, gate_k=(2, 4), split="valid")
    budget[0] = 100
    resumed = evaluated(store, model, gate_k=(2, 4), split="valid")

    gate = metrics(resumed)["gate"]
    assert gate["histogram"] == whole["gate"]["histogram"]
    assert gate["neighbors_right"] == whole["gate"]["neighbors_right"]
    assert gate["mean"] == pytest.approx(whole["gate"]["mean"], abs=1e-6)
    assert resumed.file("passage.json").read_text() == passage
    curve = next(curve for curve in metrics(resumed)["curves"] if curve["over"] == "neighbors")
    assert [point["neighbors"] for point in curve["points"]] == [0, 2, 4]


# What is refused


def test_neighbours_that_hold_the_answer_are_refused(store, tokens, index, model):
    leaking = found(store, index, exclude="none")

    with pytest.raises(
        ArtifactError, match=f"own rows.*precompute-neighbors {index.reference} --exclude self"
    ):
        evaluated(store, model, split="train", references={"neighbors": leaking})
    ids = array(tokens, "tokens.zarr", "train/ids").astype(np.int64)
    leaked = tokens_of(leaking, "train", 1)[:, 0] == ids
    honest = tokens_of(found(store, index), "train", 1)[:, 0] == ids
    assert leaked.mean() > 0.8 > 0.4 > honest.mean()
    evaluated(store, model, split="test", references={"neighbors": leaking})


def test_neighbours_of_other_tokens_are_refused(store, index, model, neighbors):
    other = small_tokens(store, seed=3)
    hint = f"precompute-neighbors {index.reference} --tokens {other.reference}"
    for memory in ("none", KNN_LM):
        with pytest.raises(ArtifactError, match=hint):
            evaluated(store, model, memory, references={"tokens": other})
    others = found(store, index, tokens=other)
    report = evaluated(store, model, references={"tokens": other, "neighbors": others})
    assert metrics(report)["read"]["tokens"] == other.reference
    with pytest.raises(
        ArtifactError,
        match=f"{index.reference} --k 5 --tokens {other.reference} --store {store.root}$",
    ):
        evaluated(store, model, references={"tokens": other, "neighbors": others}, gate_k=(5,))
    own = model.input("tokens").reference
    with pytest.raises(
        ArtifactError, match=f"precompute-neighbors {index.reference} --tokens {own}"
    ):
        evaluated(store, model, references={"neighbors": others})


def test_neighbours_with_another_tokenizer_are_refused(store, model):
    foreign = small_tokens(store, tokenizer="foreign")
    encoder = small_model(store, foreign)
    datastore = made(store, BuildDatastore(), DatastoreConfig(key="hidden"), encoder)
    others = found(
        store, made(store, BuildIndex(), IndexConfig(index="flat", metric="ip"), datastore)
    )
    with pytest.raises(
        ArtifactError, match=r"tokenizer is not that of.*memlm train tokens/.*build-datastore"
    ):
        evaluated(store, model, references={"neighbors": others})


def test_neighbours_must_be_there_of_every_split_that_is_read(store, tokens, index):
    few = found(store, index, queries=("test",))
    model = gated_model(store, tokens, few)
    evaluated(store, model)
    with pytest.raises(
        ArtifactError, match=f"'valid'.*precompute-neighbors {index.reference} --queries test,valid"
    ):
        evaluated(store, model, split="valid")
    with pytest.raises(ArtifactError, match="no neighbours of split 'valid'"):
        evaluated(store, model, KNN_LM.replace("0.3", "tune"), references={"index": index})


def test_more_neighbours_than_are_stored_are_refused(store, index, model):
    with pytest.raises(
        ArtifactError, match=f"4 neighbours a token.*precompute-neighbors {index.reference} --k 5"
    ):
        evaluated(store, model, gate_k=(1, 5))
    few = found(store, index, k=2)
    with pytest.raises(ArtifactError, match="--k 3"):
        evaluated(store, model, references={"neighbors": few})
    evaluated(store, model, references={"neighbors": few}, gate_k=(2,))


def test_a_rebuilt_datastore_with_other_bytes_is_refused(tmp_path):
    store = Store(tmp_path)
    tokens = small_tokens(store)
    datastore = made(
        store, BuildDatastore(), DatastoreConfig(key="hidden"), small_model(store, tokens, seed=5)
    )
    neighbors = found(
        store, made(store, BuildIndex(), IndexConfig(index="flat", metric="ip"), datastore)
    )
    model = gated_model(store, tokens, neighbors)
    changed = next(file for file in datastore.manifest.files if "values/c" in file)
    restate(datastore.path, lambda manifest: manifest["files"][changed].update(blake2b="0" * 128))
    with pytest.raises(ArtifactError, match=r"other bytes|other content"):
        evaluated(Store(tmp_path), model)


@pytest.mark.parametrize("settings", [{"gate_k": (2,)}, {"passage": "0:4"}])
def test_settings_of_a_gate_need_a_gate(store, encoder, settings):
    with pytest.raises(UsageError, match=r"has no gate: leave --(gate-k|passage) out"):
        evaluated(store, encoder, **settings)


@pytest.mark.parametrize("passage", ["35:40", "7:7", "9:3"])
def test_a_passage_lies_in_the_split(store, model, passage):
    with pytest.raises(UsageError, match="holds no token: test has 35 tokens"):
        evaluated(store, model, passage=passage)
    assert evaluated(store, model, passage="007:0012").config["passage"] == "7:12"
    assert evaluated(store, model, passage="30:99").config["passage"] == "30:35"


def test_a_passage_has_room_in_a_heat_map(store, model, monkeypatch):
    monkeypatch.setattr(passages, "LONGEST", 6)
    with pytest.raises(UsageError, match="--passage 3:10 is longer than 6 tokens"):
        evaluated(store, model, passage="3:10")


@pytest.mark.parametrize("passage", ["5", "a:b", "-1:4", "3:4:5"])
def test_a_passage_is_spelled_from_start_to_stop(passage):
    with pytest.raises(ValueError, match="is no START:STOP, such as 0:64"):
        EvaluateConfig(passage=passage)


def test_an_index_gives_knn_lm_on_top_of_the_gate(store, index, model):
    report = metrics(evaluated(store, model, references={"index": index}, tune_split="valid"))
    assert [row["row"] for row in report["rows"]] == ["spalm", "knn-lm", "spalm, gate shut"]
    assert set(report["memories"][0]["tuned"]) == {"lambda", "temperature"}


def test_an_index_that_nothing_reads_is_refused(store, index, model):
    with pytest.raises(UsageError, match="--index names a memory that no --memory reads"):
        evaluated(store, model, "none", references={"index": index})
