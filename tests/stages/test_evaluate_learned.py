"""A weight of the memory for each context, through the stage, against one position at a time."""

import math

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.encoding.carried_state import CarriedState
from stages.errors import UsageError
from stages.evaluation.work import EvaluateWork
from stages.generation.stream import dense_log_probs
from stages.index import BuildIndex
from stages.inspection.inspect import inspect_passages
from stages.inspection.reading import load_reader
from stages.inspection.request import PASSAGE, Passage, find
from stages.inspection.settings import Request
from stages.models.weights import load_model
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.retrieval.grammar import parse_readings
from stages.retrieval.neighbors import IndexSearch
from stages.search.config import IndexConfig
from tests.builders.evaluations import evaluated, made, metrics, slow_plain
from tests.builders.limits import limit
from tests.oracles import knn_lm
from tests.oracles import learned_weight as oracle
from tests.stages.small_store import EOS, array

SPEC = "external:k=6,lambda=learned,temperature=2"
CACHE = "long:size=5,theta=1,lambda=0.2"


@pytest.fixture(scope="module")
def index(store: Store, model: Artifact) -> Artifact:
    return made(
        store,
        BuildIndex(),
        IndexConfig(index="flat"),
        made(store, BuildDatastore(), DatastoreConfig(), model),
    )


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks learned from forty tokens are read, whatever they gain; shards are of two windows."""
    limit(monkeypatch, min_positions_of_fit=1, errors_of_gain=-math.inf, tokens_per_shard=16)


def slow_inputs(
    model: Artifact, datastore: Artifact, k: int, temperature: float
) -> list[list[float]]:
    """What is known of every token of test."""
    _, queries, ids = slow_plain(model, "test")
    keys, values = (array(datastore, "datastore.zarr", name) for name in ("keys", "values"))
    language_model, inputs = load_model(model.path, "cpu"), []
    before = np.concatenate(([EOS], ids[:-1]))
    for i, query in enumerate(queries):
        window = torch.from_numpy(before[None, i // 8 * 8 : i + 1])
        with torch.no_grad():
            p_lm = (
                language_model.log_probs(language_model.encode(window).hidden[0, -1:])[0]
                .double()
                .exp()
                .tolist()
            )
        rows, distances = knn_lm.neighbours(keys, query, k, "l2")
        told = oracle.of_neighbors((-distances / temperature).tolist(), values[rows].tolist())
        inputs.append([*oracle.of_context(p_lm, int((values == before[i]).sum())), *told])
    return inputs


def test_every_token_is_read_with_the_weight_of_its_context(store, model, index):
    report = evaluated(store, index, SPEC, save_token_scores=True)
    network, told = report.json("weight-network.json"), metrics(report)
    lam = [oracle.weight(network, x) for x in slow_inputs(model, index.input("datastore"), 6, 2.0)]
    scores = {
        name: array(report, "scores.zarr", name).astype(float)
        for name in ("logp", "logp_lm", "logp_memory")
    }
    memory = scores["logp_memory"].reshape(len(lam), -1)[:, 0]
    want = [
        knn_lm.log_prob(*one)
        for one in zip(np.exp(scores["logp_lm"]), np.exp(memory), lam, strict=True)
    ]
    np.testing.assert_allclose(scores["logp"], want, atol=2e-5)
    assert np.std(lam) > 1e-4
    figures = told["learned_weight"]
    assert figures["used"] and figures["mean"] == pytest.approx(np.mean(lam), abs=1e-5)
    assert (
        figures["histogram"]["tokens"]
        == np.histogram(lam, figures["histogram"]["edges"])[0].tolist()
    )
    assert [row["row"] for row in told["rows"]] == ["plain", "knn-lm (learned λ)", "knn-lm"]
    assert told["memories"][0]["learned"] == "lambda"
    assert (report.path / "figures" / "learned-lambda.svg").exists()


def test_beside_it_stands_the_best_weight_for_all(store, index):
    learned = metrics(evaluated(store, index, SPEC))
    tuned = metrics(evaluated(store, index, SPEC.replace("learned", "tune")))
    assert learned["rows"][2]["nll"] == tuned["nll"]
    assert learned["learned_weight"]["one_for_all"] == tuned["memories"][0]["lambda"]


def test_one_weight_is_read_where_the_network_does_not_gain_for_sure(store, index, monkeypatch):
    limit(monkeypatch, errors_of_gain=math.inf)
    report = evaluated(store, index, SPEC.replace("k=6", "k=7"))
    told = metrics(report)
    assert not told["learned_weight"]["used"] and told["learned_weight"]["held_out_gains"]
    assert told["rows"][1]["nll"] == pytest.approx(told["rows"][2]["nll"], abs=1e-6)
    assert not (report.path / "weight-network.json").exists()


def test_one_weight_is_read_where_the_tuning_split_is_too_short(store, index, monkeypatch):
    limit(monkeypatch, min_positions_of_fit=1000)
    told = metrics(evaluated(store, index, SPEC.replace("k=6", "k=8")))
    assert not told["learned_weight"]["used"] and told["learned_weight"]["held_out_gains"] == []
    assert told["rows"][1]["nll"] == pytest.approx(told["rows"][2]["nll"], abs=1e-6)


def test_perplexity_is_told_for_fewer_searches(store, index):
    report = evaluated(store, index, SPEC, save_token_scores=True)
    told = metrics(report)
    points = told["learned_weight"]["searches"]
    assert [point["asked"] for point in points] == [tenth / 10 for tenth in range(11)]
    assert (points[0]["searched"], points[0]["perplexity"]) == (0, told["rows"][0]["perplexity"])
    assert (points[-1]["searched"], points[-1]["perplexity"]) == (1, told["rows"][1]["perplexity"])
    assert [point["searched"] for point in points] == sorted(point["searched"] for point in points)
    assert (report.path / "figures" / "perplexity-by-searches.svg").exists()


@pytest.mark.parametrize("stored", [False, True])
def test_searches_that_are_left_out_are_not_made(store, index, monkeypatch, stored):
    """A token is read as with all searches, or as the model alone says."""
    source, asked, search = index, [], IndexSearch.find
    if stored:
        source = made(store, PrecomputeNeighbors(), NeighborsConfig(k=6), index)

    def find(self, split, start, stop, keys, rows=None):
        asked.append((split, stop - start if rows is None else int(rows.sum())))
        return search(self, split, start, stop, keys, rows)

    whole = evaluated(store, source, SPEC, save_token_scores=True)
    monkeypatch.setattr(IndexSearch, "find", find)
    # The check of conditions searches anew.
    limit(monkeypatch, conditions_checked=0)
    few = evaluated(store, source, SPEC + ",searched=0.5", save_token_scores=True)
    told, points = metrics(few), metrics(whole)["learned_weight"]["searches"]
    point = told["learned_weight"]["searches"][-1]
    assert point == points[5] and 0 < point["searched"] < 1
    assert point["perplexity"] == told["rows"][1]["perplexity"] == told["perplexity"]
    assert [row["row"] for row in told["rows"]] == ["plain", "knn-lm (learned λ, 50% searched)"]
    assert told["memories"][0]["searched"] == 0.5
    assert metrics(whole)["retrieval_accuracy"] and told["retrieval_accuracy"] is None
    full, some = (array(one, "scores.zarr", "logp") for one in (whole, few))
    plain = array(few, "scores.zarr", "logp_lm")
    read = np.isclose(some, full, atol=1e-6)
    assert (read | (some == plain)).all() and (some == plain).sum() == round(
        (1 - point["searched"]) * len(some)
    )
    if not stored:
        assert sum(n for split, n in asked if split == "test") == round(
            point["searched"] * told["tokens"]
        )


@pytest.mark.parametrize(
    "specs",
    [
        ("external:k=6,lambda=0.2,searched=0.5",),
        ("local+external:k=6,lambda=learned,searched=0.5",),
        (CACHE, "external:k=6,lambda=learned,searched=0.5"),
        ("external:k=6,lambda=learned,searched=0",),
        ("long:size=5,lambda=learned,searched=0.5",),
    ],
)
def test_searches_are_left_out_of_a_lone_reading_that_learns_alone(specs):
    with pytest.raises(UsageError, match="searched"):
        parse_readings(specs)


def test_it_is_learned_on_top_of_another_memory(store, index):
    report = evaluated(store, index, CACHE, SPEC, save_token_scores=True)
    told, weights = metrics(report), []
    names = [row["row"] for row in told["rows"]]
    assert names[0] == "plain" and [name.endswith(" (learned λ)") for name in names] == [
        False,
        True,
        False,
        True,
    ]
    scores = {
        name: array(report, "scores.zarr", name).astype(float)
        for name in ("logp", "logp_lm", "logp_memory")
    }
    for final, plain, (cache, neighbors) in zip(*scores.values(), strict=True):
        below = (
            plain
            if math.isinf(cache) and not weights
            else np.log(0.8 * np.exp(plain) + 0.2 * np.exp(cache))
        )
        weights.append((np.exp(final) - np.exp(below)) / (np.exp(neighbors) - np.exp(below)))
    assert told["learned_weight"]["mean"] == pytest.approx(np.mean(weights), abs=1e-3)


def test_last_words_are_ranked_by_the_same_distribution(store, index):
    told = metrics(evaluated(store, index, SPEC, score="last-word"))
    assert (
        told["learned_weight"]["used"]
        and sum(told["learned_weight"]["histogram"]["tokens"]) == told["tokens"]
    )
    assert 0 <= told["rows"][1]["accuracy"] <= 1


def test_an_interrupted_evaluation_goes_on_to_the_same_report(store, index, monkeypatch):
    spec, ran, original, budget = SPEC.replace("k=6", "k=9"), [], EvaluateWork.run_shard, [7]

    def run_shard(self, job, work, shard):
        if not budget[0]:
            budget[0] = 100
            raise KeyboardInterrupt
        budget[0] -= 1
        ran.append(shard.key)
        return original(self, job, work, shard)

    whole = evaluated(store, index, spec)
    told, network = metrics(whole), whole.json("weight-network.json")
    store.remove(whole.reference)
    monkeypatch.setattr(EvaluateWork, "run_shard", run_shard)
    with pytest.raises(KeyboardInterrupt):
        evaluated(store, index, spec)
    again = evaluated(store, index, spec)
    phases = [[f"{phase}-{n:06d}" for n in range(3)] for phase in ("tune", "weigh", "score")]
    assert ran == ["sample", *phases[0], "tune-choice", *phases[1], "weigh-choice", *phases[2]]
    assert again.json("weight-network.json") == network
    for name in ("nll", "memories", "grid", "curves", "learned_weight"):
        assert metrics(again)[name] == told[name]


@pytest.mark.parametrize(
    "spec", [SPEC, SPEC.replace("learned", "adaptive"), f"{SPEC},searched=0.5"]
)
def test_what_reads_one_position_has_the_weights_of_the_evaluation(store, index, spec):
    """Inspection and generation give a token the probability that the report gave it; its shares
    add up to that.
    """
    report = evaluated(store, index, spec, save_token_scores=True)
    request = Request(source=index.reference, report=report.reference)
    want, alone = (
        np.exp(array(report, "scores.zarr", name).astype(float)) for name in ("logp", "logp_lm")
    )
    (seen,) = inspect_passages(request, store, "test", [(0, len(want))], 1)
    np.testing.assert_allclose([view.final for view in seen.tokens], want, rtol=1e-4)
    reader = load_reader(find(request, store, "test"), request)
    ids = array(reader.read["tokens"], "tokens.zarr", "test/ids")[:8].astype(int).tolist()
    reader = reader.of_passage(Passage(ids))
    block = reader.read_range(PASSAGE, 0, len(ids), CarriedState()).scored_range
    dense = dense_log_probs(reader.range_reader, block, reader.policy).double().exp().numpy()
    np.testing.assert_allclose(dense.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(dense[np.arange(len(ids)), ids], want[: len(ids)], rtol=1e-4)
    ((shares, (entries,)),) = reader.read_entries(block)
    right = entries.values.numpy() == np.array(ids)[:, None]
    added = shares.model.double().numpy() * alone[: len(ids)] + (
        entries.carried.double().numpy() * right
    ).sum(1)
    np.testing.assert_allclose(added, want[: len(ids)], rtol=1e-4)
    assert np.std(shares.model.numpy()) > 1e-4  # weights differ between contexts
