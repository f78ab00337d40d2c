import math
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.artifacts.store import Store
from stages.comparison.compare import against_baseline, compare
from stages.comparison.settings import ComparisonSettings
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, UsageError
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.work import EvaluateWork
from stages.index import BuildIndex
from stages.inspection.request import reported_readings
from stages.needs import matching_memory
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.reports.fields import FIELDS
from stages.retrieval.weights.grid import Grid
from stages.search.config import IndexConfig
from stages.search.distances import exact_distances
from tests.builders.evaluations import evaluated, made, metrics, slow_plain
from tests.builders.limits import limit
from tests.oracles import knn_lm as oracle
from tests.stages.notes import Notes
from tests.stages.small_store import array, small_model, small_tokens

LINES = "external:k=6,lambda=0.3,temperature=2"


@pytest.fixture(scope="module", autouse=True)
def intervals_of_few():
    """Splits here are a few documents; reports of this module, which tests share, have intervals
    all the same.
    """
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, min_units=2)
        yield


@pytest.fixture(scope="module")
def datastore(store: Store, model: Artifact) -> Artifact:
    return made(store, BuildDatastore(), DatastoreConfig(), model)


@pytest.fixture(scope="module")
def index(store: Store, datastore: Artifact) -> Artifact:
    return made(store, BuildIndex(), IndexConfig(index="flat"), datastore)


@pytest.fixture(scope="module")
def neighbors(store: Store, index: Artifact) -> Artifact:
    return made(store, PrecomputeNeighbors(), NeighborsConfig(k=16), index)


def slow_knn_lm(model, datastore, split, k, lam, temperature, metric="l2", own=False):
    log_p, queries, ids = slow_plain(model, split)
    keys = array(datastore, "datastore.zarr", "keys")
    values = array(datastore, "datastore.zarr", "values")
    final, memory = [], []
    for i, target in enumerate(ids):
        rows, distances = oracle.neighbours(keys, queries[i], k, metric, {i} if own else ())
        p_mem = oracle.memory_probability(distances, values[rows], target, temperature, metric)
        memory.append(p_mem)
        final.append(oracle.log_prob(math.exp(log_p[i]), p_mem, lam))
    return np.array(final), np.array(memory)


@pytest.mark.parametrize(("context", "stride"), [(None, None), (7, 3)])
def test_plain_perplexity_is_that_of_one_window_after_the_other(store, model, context, stride):
    report = metrics(evaluated(store, model, context=context, stride=stride))
    log_p, _, _ = slow_plain(model, "test", context or 8, stride or 8)
    nll = -log_p.sum()
    assert report["tokens"] == 35
    assert report["nll"] == pytest.approx(nll / 35, abs=1e-6)
    assert report["perplexity"] == pytest.approx(math.exp(nll / 35), rel=1e-6)
    assert report["bits_per_character"] == pytest.approx(nll / 175 / math.log(2), rel=1e-6)
    assert report["bits_per_byte"] == pytest.approx(nll / 210 / math.log(2), rel=1e-6)
    assert report["word_perplexity"] == pytest.approx(math.exp(nll / 17), rel=1e-6)
    assert report["memories"] == []
    assert [row["row"] for row in report["rows"]] == ["plain"]


def test_windows_can_begin_anew_at_documents(store, model):
    report = metrics(evaluated(store, model, reset="document"))
    log_p, _, _ = slow_plain(model, "test", documents=True)
    assert report["nll"] == pytest.approx(-log_p.mean(), abs=1e-6)


@pytest.mark.parametrize("split", ["test", "train"])
def test_knn_lm_is_what_float64_makes_of_the_stored_keys(store, model, datastore, index, split):
    report = evaluated(store, index, LINES, split=split, exclude="self", save_token_scores=True)
    want, memory = slow_knn_lm(model, datastore, split, 6, 0.3, 2.0, own=split == "train")
    logp = array(report, "scores.zarr", "logp")
    np.testing.assert_allclose(logp, want, atol=1e-4)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(
            array(report, "scores.zarr", "logp_memory")[:, 0], np.log(memory), atol=1e-3
        )
    assert metrics(report)["nll"] == pytest.approx(-want.mean(), abs=1e-4)
    assert metrics(report)["perplexity"] == pytest.approx(
        math.exp(-logp.astype(float).mean()), rel=1e-6
    )


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_neighbours_weigh_as_the_index_compares(store, model, datastore, metric):
    """exp(-d²/τ), as the paper, or exp(q·k/τ) of an index of inner products."""
    found = made(store, BuildIndex(), IndexConfig(index="flat", metric=metric), datastore)
    report = evaluated(
        store, found, "external:k=20,lambda=0.3,temperature=1.7", save_token_scores=True
    )
    _, memory = slow_knn_lm(model, datastore, "test", 20, 0.3, 1.7, metric)
    np.testing.assert_allclose(
        np.exp(array(report, "scores.zarr", "logp_memory")[:, 0]), memory, atol=1e-4
    )


def test_stored_neighbours_give_what_a_search_gives(store, index, neighbors):
    for split in ("test", "train"):
        searched = metrics(evaluated(store, index, LINES, split=split, exclude="self"))
        stored = metrics(evaluated(store, neighbors, LINES, split=split, exclude="self"))
        assert stored["nll"] == pytest.approx(searched["nll"], abs=1e-6)
        assert stored["retrieval_accuracy"] == searched["retrieval_accuracy"]


def test_no_more_neighbours_are_read_than_there_are_rows(store, datastore, index):
    rows = datastore.metrics["rows"]
    every, more = (
        evaluated(store, index, f"external:k={k},lambda=0.3") for k in (rows, rows * 1000)
    )
    assert more.id == every.id


def test_the_best_of_the_grid_is_used(store, model, datastore, neighbors):
    spec = "external:k=4/16,lambda=0.1/0.4/0.7,temperature=0.5/2/8"
    report = metrics(evaluated(store, neighbors, spec))
    tried = {
        (k, temperature, lam): -slow_knn_lm(model, datastore, "valid", k, lam, temperature)[
            0
        ].mean()
        for k in (4, 16)
        for temperature in (0.5, 2.0, 8.0)
        for lam in (0.1, 0.4, 0.7)
    }
    k, temperature, lam = min(tried, key=tried.get)
    (memory,) = report["memories"]
    assert (memory["k"], memory["temperature"], memory["lambda"]) == (k, temperature, lam)
    assert memory["tuned"] == ["temperature", "lambda", "k"]
    assert memory["tune_split"] == "valid"
    grid = report["grid"]
    assert (grid["scale_name"], grid["weight_name"], grid["over"]) == ("temperature", "lambda", "k")
    assert grid["plain_nll"] == pytest.approx(-slow_plain(model, "valid")[0].mean(), abs=1e-4)
    for i, row_temperature in enumerate(grid["scales"]):
        for j, row_lam in enumerate(grid["weights"]):
            want = tried[grid["at"], row_temperature, row_lam]
            assert grid["nll"][i][j] == pytest.approx(want, abs=1e-4)
    want = -slow_knn_lm(model, datastore, "test", k, lam, temperature)[0].mean()
    assert report["nll"] == pytest.approx(want, abs=1e-4)


def test_the_curve_over_k_tunes_every_k_by_itself(store, model, datastore, neighbors):
    report = metrics(evaluated(store, neighbors))
    (curve,) = report["curves"]
    assert (curve["row"], curve["over"]) == ("knn-lm", "k")
    assert [point["k"] for point in curve["points"]] == [1, 2, 4, 8, 16]
    for point in curve["points"]:
        setting = point["k"], point["lambda"], point["temperature"]
        want = -slow_knn_lm(model, datastore, "test", *setting)[0].mean()
        assert point["perplexity"] == pytest.approx(math.exp(want), rel=1e-4)
    assert curve["points"][-1]["perplexity"] == pytest.approx(report["perplexity"])


def test_retrieval_accuracy_counts_targets_among_the_best(store, model, datastore, neighbors):
    report = metrics(evaluated(store, neighbors, LINES))
    ids = array(model.input("tokens"), "tokens.zarr", "test/ids")
    values = array(datastore, "datastore.zarr", "values")
    found = values[array(neighbors, "neighbors.zarr", "test/ids")]
    want = {str(k): float((found[:, :k] == ids[:, None]).any(1).mean()) for k in (1, 6)}
    assert report["retrieval_accuracy"] == pytest.approx(want)
    shares = [float((values == token).mean()) for token in ids]
    chance = {str(k): sum(1 - (1 - share) ** k for share in shares) / len(ids) for k in (1, 6)}
    assert report["retrieval_accuracy_by_chance"] == pytest.approx(chance)


def test_readings_compose_in_order(store, model, datastore, index):
    first, second = "external:k=2,lambda=0.2", "external:k=8,lambda=0.5,temperature=4"
    report = evaluated(store, index, first, second, save_token_scores=True)
    p_lm = np.exp(slow_plain(model, "test")[0])
    p_first = slow_knn_lm(model, datastore, "test", 2, 0.2, 1.0)[1]
    p_second = slow_knn_lm(model, datastore, "test", 8, 0.5, 4.0)[1]
    want = 0.5 * (0.8 * p_lm + 0.2 * p_first) + 0.5 * p_second
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), np.log(want), atol=1e-4)
    assert array(report, "scores.zarr", "logp_memory").shape == (35, 2)
    rows = metrics(report)["rows"]
    assert [row["row"] for row in rows] == ["plain", "knn-lm then knn-lm", "knn-lm", "knn-lm (2)"]
    for row, p in zip(
        rows[2:], (0.8 * p_lm + 0.2 * p_first, 0.5 * p_lm + 0.5 * p_second), strict=True
    ):
        assert row["nll"] == pytest.approx(-np.log(p).mean(), abs=1e-4)


def test_two_tuned_readings_get_the_best_pair(store, neighbors):
    first, second = "external:k=2,lambda=0.1/0.3", "external:k=8,lambda=0.6,temperature=1/5"
    together = metrics(evaluated(store, neighbors, first, second, tune_split="test"))
    tried = [
        metrics(
            evaluated(store, neighbors, f"external:k=2,lambda={lam}", f"{second[:-3]}{temperature}")
        )
        for lam in (0.1, 0.3)
        for temperature in (1, 5)
    ]
    assert together["nll"] == pytest.approx(min(one["nll"] for one in tried), abs=1e-9)


def test_what_is_read_and_why_is_said_before(store, model):
    heard = Notes()
    report = evaluated(store, model, "long:size=1,theta=5,lambda=0.02/0.1", reporter=heard)
    splits = report.input("tokens").metrics["splits"]
    read = [line for line in heard.infos if line.startswith(("tuning", "scoring"))]
    assert read == [
        f"tuning on valid, {splits['valid']['tokens']:,} tokens",
        f"scoring test, {metrics(report)['tokens']:,} tokens",
    ]


def test_memory_that_only_costs_is_switched_off_and_the_report_says_so(store, model):
    report = evaluated(store, model, "long:size=1,theta=tune,lambda=tune")
    told = metrics(report)
    plain, cache, _ = told["rows"]
    assert cache["nll"] == plain["nll"]
    (memory,) = told["memories"]
    assert (memory["lambda"], memory["theta"], memory["tuned"]) == (0.0, None, ["theta", "lambda"])
    (reading,) = reported_readings(report, model)
    assert (reading.weight, reading.comparison.theta, reading.comparison.temperature) == (
        (0.0,),
        None,
        None,
    )  # to be read with elsewhere
    assert told["grid"]["weights"][:2] == [0.0, 0.02]
    assert min(nll for line in told["grid"]["nll"] for nll in line[1:]) > told["grid"]["plain_nll"]
    assert "memory-of-no-use" in told["remarks"]
    assert (
        metrics(evaluated(store, model, "long:size=1,theta=5,lambda=0.02/0.1"))["memories"][0][
            "lambda"
        ]
        == 0.02
    )


@pytest.mark.parametrize("together", [10_000, 1])
def test_a_row_of_two_memories_keeps_the_one_that_helps(tmp_path, together, monkeypatch):
    """Whether all points are tried, or the readings are tuned in turn."""
    limit(monkeypatch, points_together=together)
    store = Store(tmp_path)
    model = small_model(store, small_tokens(store))
    useless, useful = "long:size=1,theta=5,lambda=tune", "long:size=40,theta=0,lambda=tune"
    both = metrics(evaluated(store, model, useless, useful))
    alone = metrics(evaluated(store, model, useful))
    assert [memory["lambda"] for memory in both["memories"]] == [
        0.0,
        alone["memories"][0]["lambda"],
    ]
    assert both["nll"] == alone["nll"]


@pytest.mark.parametrize(
    ("similarity", "metric", "divisor"),
    [("dot", "ip", 1), ("scaled-dot", "ip", math.sqrt(8)), ("l2", "l2", 1)],
)
def test_another_similarity_is_recomputed_from_the_stored_keys(
    store, model, datastore, index, similarity, metric, divisor
):
    report = evaluated(
        store, index, f"external:k=200,lambda=0.3,similarity={similarity}", save_token_scores=True
    )
    want, _ = slow_knn_lm(model, datastore, "test", 200, 0.3, divisor, metric)
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=1e-4)


def test_a_lossy_index_is_read_with_both_distances(store, model, datastore):
    lossy = made(store, BuildIndex(), IndexConfig(index="SQ4"), datastore)
    stored = made(store, PrecomputeNeighbors(), NeighborsConfig(k=90, exclude="none"), lossy)
    spec = "external:k=90,lambda=0.3,temperature=2"
    reports = [metrics(evaluated(store, source, spec)) for source in (lossy, stored)]
    exact = -slow_knn_lm(model, datastore, "test", 90, 0.3, 2.0)[0].mean()
    for report in reports:
        assert [row["row"] for row in report["rows"]] == [
            "plain",
            "knn-lm (quantised distances)",
            "knn-lm (exact distances)",
        ]
        assert report["rows"][2]["nll"] == pytest.approx(exact, abs=1e-4)
        assert report["rows"][1]["nll"] == report["nll"] != pytest.approx(exact, abs=1e-5)
    turned = metrics(evaluated(store, stored, spec + ",exact=true"))
    assert turned["nll"] == pytest.approx(exact, abs=1e-4)
    assert turned["rows"][2]["nll"] == pytest.approx(reports[0]["nll"], abs=1e-6)


def test_every_row_counts_the_time_of_the_distances_that_it_reads(store, index, monkeypatch):
    calls = []

    def slowly(*arguments):
        calls.append(arguments)
        time.sleep(0.3)
        return exact_distances(*arguments)

    monkeypatch.setattr("stages.retrieval.scored_range.exact_distances", slowly)
    limit(monkeypatch, conditions_checked=0)
    report = evaluated(store, index, *["external:k=5,lambda=0.3,similarity=dot"] * 2, context=5)
    assert len(calls) == 1
    assert all(row["tokens_per_second"] <= 35 / 0.3 for row in metrics(report)["rows"][1:])


def test_the_memory_of_another_encoder(store, model, datastore, index, neighbors):
    other = small_model(store, model.input("tokens"), seed=5)
    report = evaluated(store, other, LINES, index=index, save_token_scores=True)
    p_lm = np.exp(slow_plain(other, "test")[0])
    p_mem = slow_knn_lm(model, datastore, "test", 6, 0.3, 2.0)[1]
    np.testing.assert_allclose(
        array(report, "scores.zarr", "logp"), np.log(0.7 * p_lm + 0.3 * p_mem), atol=1e-4
    )
    assert metrics(report)["read"]["encoder"] == model.reference
    assert metrics(report)["read"]["model"] == other.reference
    stored = evaluated(store, other, LINES, neighbors=neighbors)
    assert metrics(stored)["nll"] == pytest.approx(metrics(report)["nll"], abs=1e-6)


def test_another_encoder_reads_the_windows_of_its_datastore(store, model, index, neighbors):
    other = small_model(store, model.input("tokens"), seed=5)
    searched = evaluated(store, other, LINES, index=index, context=5, stride=2)
    stored = evaluated(store, other, LINES, neighbors=neighbors, context=5, stride=2)
    assert metrics(searched)["nll"] == pytest.approx(metrics(stored)["nll"], abs=1e-6)


def test_another_corpus_with_the_model_s_vocabulary(store, model, index):
    other = small_tokens(store, seed=3, lengths={"test": 20})
    report = metrics(evaluated(store, index, LINES, tokens=other))
    assert (report["tokens"], report["read"]["tokens"]) == (20, other.reference)


def test_tokens_outside_paragraphs_of_the_training_text(store, model, neighbors):
    report = evaluated(store, neighbors, LINES, split="valid", save_token_scores=True)
    tokens = model.input("tokens")
    known = set(array(tokens, "tokens.zarr", "train/paragraph_hashes").tolist())
    ends = array(tokens, "tokens.zarr", "valid/paragraph_ends")
    outside = np.ones(40, bool)
    for start, end, digest in zip(
        [0, *ends],
        ends,
        array(tokens, "tokens.zarr", "valid/paragraph_hashes").tolist(),
        strict=False,
    ):
        outside[start:end] = digest not in known
    told = metrics(report)["outside_repeated_paragraphs"]
    assert 0 < told["repeated_tokens"] == 40 - outside.sum()
    (text,) = told["texts"]
    assert (text["corpus"], text["read_by"]) == (tokens.reference, ["model", "datastore"])
    for row, name in zip(told["rows"], ("logp_lm", "logp"), strict=True):
        want = math.exp(-array(report, "scores.zarr", name)[outside].astype(float).mean())
        assert row["perplexity"] == pytest.approx(want, rel=1e-6)


def test_paragraphs_of_a_swapped_datastore_are_counted_too(store, model):
    other = small_tokens(store, lengths={"train": 9, "test": 1800}, seed=4)
    swapped = made(store, BuildDatastore(), DatastoreConfig(split="test"), model, tokens=other)
    index = made(store, BuildIndex(), IndexConfig(index="flat"), swapped)
    report = evaluated(store, index, LINES, split="valid", save_token_scores=True)
    tokens = model.input("tokens")
    hashes = array(tokens, "tokens.zarr", "valid/paragraph_hashes")
    known = [
        array(t, "tokens.zarr", f"{s}/paragraph_hashes")
        for t, s in ((tokens, "train"), (other, "test"))
    ]
    lengths = np.diff(array(tokens, "tokens.zarr", "valid/paragraph_ends"), prepend=0)
    inside = [np.repeat(np.isin(hashes, one), lengths) for one in known]
    told = metrics(report)["outside_repeated_paragraphs"]
    assert [(t["corpus"], t["split"], t["read_by"]) for t in told["texts"]] == [
        (tokens.reference, "train", ["model"]),
        (other.reference, "test", ["datastore"]),
    ]
    assert [text["repeated_share"] for text in told["texts"]] == [one.mean() for one in inside]
    assert (inside[1] & ~inside[0]).sum() > 0
    assert told["tokens"] == (~(inside[0] | inside[1])).sum()
    nll = -array(report, "scores.zarr", "logp").astype(float)
    assert told["rows"][1]["perplexity"] == pytest.approx(
        math.exp(nll[~(inside[0] | inside[1])].mean()), rel=1e-6
    )


def test_every_change_has_the_interval_that_compare_finds(store, model, index, monkeypatch):
    plain = evaluated(store, model, "none", save_token_scores=True)
    report = evaluated(store, index, LINES, save_token_scores=True)
    assert metrics(plain)["change_intervals"] is None
    told, found = (
        metrics(report)["change_intervals"],
        compare(plain, report, ComparisonSettings(most=0, around=0)),
    )
    expected = [edge - 1 for edge in found["perplexity_ratio_interval"]]
    assert [row["row"] for row in told["rows"]] == ["knn-lm"]
    assert told["rows"][0]["interval"] == pytest.approx(expected, abs=1e-9)
    assert told.items() >= {n: v for n, v in found["bootstrap"].items() if n != "units_won"}.items()
    ordinary = evaluated(store, index, LINES, baseline=plain)
    against = metrics(ordinary)["change_intervals"]["rows"]
    assert against[1]["interval"] == pytest.approx(told["rows"][0]["interval"])
    assert against[0]["interval"] == [0, 0]
    lowest, above = sorted(
        zip(metrics(ordinary)["rows"], against, strict=True), key=lambda row: row[0]["perplexity"]
    )
    assert lowest[1]["above_lowest"] is None
    low, high = (1 / (1 + edge) - 1 for edge in reversed(against[1]["interval"]))
    turned = against[1]["interval"] if lowest[0]["row"] == "plain" else [low, high]
    assert above[1]["above_lowest"] == pytest.approx(turned)
    limit(monkeypatch, tokens_per_shard=13)
    parts = evaluated(store, index, LINES, context=4, stride=4, save_token_scores=True)
    alone = evaluated(store, model, "none", context=4, stride=4, save_token_scores=True)
    found = compare(alone, parts, ComparisonSettings(most=0, around=0))
    expected = [edge - 1 for edge in found["perplexity_ratio_interval"]]
    assert metrics(parts)["change_intervals"]["rows"][0]["interval"] == pytest.approx(
        expected, abs=1e-9
    )


def test_a_baseline_is_of_the_same_tokens_and_its_first_row_is_kept(store, model, index):
    other = small_model(store, model.input("tokens"), seed=5)
    ordinary = evaluated(store, other, "none", save_token_scores=True)
    report = evaluated(store, index, LINES, baseline=ordinary, save_token_scores=True)
    told = metrics(report)["baseline"]
    assert (told["report"], told["model"], told["method"]) == (
        ordinary.reference,
        other.reference,
        "lm",
    )
    assert told["row"] == metrics(ordinary)["rows"][0]
    assert told["differs"] == []  # another seed is no other kind of model
    assert report.reference != evaluated(store, index, LINES, save_token_scores=True).reference
    settings = {**model.config["model"], "dropout": 0.3}
    longer = evaluated(
        store, small_model(store, model.input("tokens"), model=settings, seed=7), "none"
    )
    (differs,) = metrics(evaluated(store, index, LINES, baseline=longer))["baseline"]["differs"]
    assert differs.startswith("dropout ") and differs.endswith(", not 0.3")
    found = against_baseline(report)
    assert found["rows"] == ["plain", "knn-lm"]
    assert found["perplexity_ratio"] == pytest.approx(
        metrics(report)["perplexity"] / told["row"]["perplexity"], 1e-5
    )
    without = {"baseline": ordinary, "save_token_scores": False}
    assert against_baseline(evaluated(store, index, LINES, **without)) is None
    for settings in ({"split": "valid"}, {"tokens": small_tokens(store, seed=3)}):
        with pytest.raises(ArtifactError, match="no baseline of this"):
            evaluated(store, index, LINES, baseline=ordinary, **settings)


def test_several_shards_give_what_one_gives(store, neighbors, monkeypatch):
    whole = evaluated(store, neighbors, save_token_scores=True, stride=4)
    limit(monkeypatch, tokens_per_shard=13)
    other = Store(store.root.parent / "parts")
    for name in ("tokens", "model", "datastore", "index", "neighbors"):
        (other.root / name).parent.mkdir(parents=True, exist_ok=True)
        (other.root / name).symlink_to(store.root / name)
    parts = evaluated(other, neighbors, save_token_scores=True, stride=4)
    assert len(list((parts.path / "scores.zarr/logp/c").iterdir())) == 3
    for name in ("nll", "retrieval_accuracy"):
        assert metrics(parts)[name] == pytest.approx(metrics(whole)[name], abs=1e-6)
    np.testing.assert_allclose(
        array(parts, "scores.zarr", "logp_memory"),
        array(whole, "scores.zarr", "logp_memory"),
        atol=1e-4,
    )


def test_shards_of_a_slow_model_have_fewer_tokens(store, model, monkeypatch):
    """They are cut by the arithmetic of their windows, which overlap by half here."""
    weights = model.metrics["parameters"]
    limit(monkeypatch, arithmetic_per_shard=2 * weights * 2 * 16.5)
    report = evaluated(store, model, "none", context=8, stride=4)
    scored = metrics(report)["tokens"]
    assert len(list((report.path / "scores.zarr/logp/c").iterdir())) == -(-scored // 16)


def test_an_interrupted_evaluation_repeats_no_shard(store, index, monkeypatch):
    limit(monkeypatch, tokens_per_shard=16)
    ran, original, budget = [], EvaluateWork.run_shard, [4]

    def run_shard(self, job, work, shard):
        if not budget[0]:
            budget[0] = 100
            raise KeyboardInterrupt
        budget[0] -= 1
        ran.append(shard.key)
        return original(self, job, work, shard)

    monkeypatch.setattr(EvaluateWork, "run_shard", run_shard)
    spec = "external:k=5,lambda=tune,temperature=tune"
    with pytest.raises(KeyboardInterrupt):
        evaluated(store, index, spec)
    resumed = metrics(evaluated(store, index, spec))
    tuning, scoring = ([f"{phase}-{n:06d}" for n in range(3)] for phase in ("tune", "score"))
    assert ran == ["sample", *tuning, "tune-choice", *scoring]
    whole = metrics(evaluated(store, index, spec + ",reader=interpolate", save_token_scores=True))
    for name in ("nll", "memories", "grid", "curves"):
        assert resumed[name] == whole[name]


def test_settings_are_chosen_once_and_scored_with_when_resumed(store, neighbors, monkeypatch):
    limit(monkeypatch, tokens_per_shard=16)
    spec, settings = "external:k=4,lambda=tune,temperature=tune", {"save_token_scores": True}
    whole = evaluated(store, neighbors, spec, **settings)
    told, files = metrics(whole), whole.manifest.files
    store.remove(whole.reference)
    ran, original, end = [], EvaluateWork.run_shard, ["score-000001"]

    def run_shard(self, job, work, shard):
        if shard.key in end:
            raise KeyboardInterrupt
        ran.append(shard.key)
        return original(self, job, work, shard)

    monkeypatch.setattr(EvaluateWork, "run_shard", run_shard)
    with pytest.raises(KeyboardInterrupt):
        evaluated(store, neighbors, spec, **settings)
    end[:], ran[:] = [], []
    monkeypatch.setattr(Grid, "choose", None)
    again = evaluated(store, neighbors, spec, **settings)
    assert ran == ["score-000001", "score-000002"]
    for name in files:
        assert name == "metrics.json" or again.manifest.files[name] == files[name]
    for name in ("nll", "memories", "grid", "curves"):
        assert metrics(again)[name] == told[name]


def test_a_report_holds_what_the_contract_promises(store, neighbors):
    report = evaluated(store, neighbors, LINES)
    told = metrics(report)
    for name in (
        *("split", "tokens", "nll", "perplexity", "bits_per_character", "word_perplexity"),
        *("method", "memories", "tokens_per_second"),
    ):
        assert told[name] is not None
    assert set(told["read"]) == {"model", "tokens", "neighbors", "index", "datastore", "encoder"}
    assert report.metrics["perplexity"] == told["perplexity"]
    assert told.keys() <= FIELDS.keys()
    assert (report.path / "scores.zarr").exists()
    bare = evaluated(store, neighbors, LINES, save_token_scores=False)
    assert not (bare.path / "scores.zarr").exists()


def test_nothing_is_tuned_where_nothing_is_to_choose(store, neighbors, model):
    assert evaluated(store, neighbors, LINES).config["tune_split"] is None
    plain = evaluated(store, neighbors, "none")
    assert plain.id == evaluated(store, model).id
    assert set(metrics(plain)["read"]) == {"model", "tokens"}


def test_tuning_on_the_scored_split_and_optima_at_the_edge_are_told(store, model, neighbors):
    heard = Notes()
    spec = "external:k=3,lambda=0.001/0.002/0.003"
    told = metrics(evaluated(store, neighbors, spec, tune_split="test", reporter=heard))
    assert "tuned on 'test'" in heard.warnings[0]
    assert "edge-of-grid" in told["remarks"]
    assert told["tuning"]["split"] == "test" and told["tuning"]["largest"]["k"] == 16


@pytest.mark.parametrize(
    ("memory", "settings", "error", "words"),
    [
        (
            "external:k=17,lambda=0.2",
            {},
            ArtifactError,
            "has 16 neighbours a token, fewer than k=17",
        ),
        (
            "external:lambda=0.2,key=hidden",
            {},
            ArtifactError,
            "build-datastore --key hidden model/",
        ),
        (
            "external:lambda=tune",
            {"tune_split": "vald"},
            ArtifactError,
            "no split 'vald' to tune on",
        ),
        ("external:lambda=0.2", {"split": "tset"}, ArtifactError, "did you mean 'test'"),
        ("external:lambda=0.2", {"stride": 9}, UsageError, "--stride 9 is larger"),
    ],
)
def test_what_does_not_fit_is_refused(store, neighbors, memory, settings, error, words):
    with pytest.raises(error, match=words):
        evaluated(store, neighbors, memory, **settings)


def test_a_model_without_numbers_is_named(store, model):
    broken = small_model(store, model.input("tokens"), poison=True)
    with pytest.raises(
        ArtifactError, match=rf"{broken.reference} gives probabilities that are not"
    ):
        evaluated(store, broken)


def test_an_empty_split_is_refused(store, model):
    empty = small_tokens(store, lengths={"test": 0, "train": 4})
    with pytest.raises(ArtifactError, match=r"Split 'test' of tokens/.* has no tokens"):
        evaluated(store, model, tokens=empty)


def test_neighbours_must_be_those_of_the_scored_tokens(store, index, neighbors, model):
    some = made(store, PrecomputeNeighbors(), NeighborsConfig(k=4, queries=("valid",)), index)
    with pytest.raises(ArtifactError, match=r"no neighbours of split 'test' \(it has: valid\)"):
        evaluated(store, some, LINES)
    other = small_tokens(store, seed=9)
    with pytest.raises(ArtifactError, match=r"holds neighbours of tokens/.*, not of tokens/"):
        evaluated(store, neighbors, LINES, tokens=other)


def test_neighbours_that_hold_the_answers_are_refused(store, index):
    seen = made(store, PrecomputeNeighbors(), NeighborsConfig(k=6, exclude="none"), index)
    with pytest.raises(ArtifactError, match="--exclude self"):
        evaluated(store, seen, LINES, split="train")
    assert metrics(evaluated(store, seen, LINES))["split"] == "test"


def test_a_model_alone_has_no_external_memory(store, model, index, neighbors):
    with pytest.raises(
        UsageError,
        match=r"evaluate an index or neighbors \(memlm build-datastore .*\), or name one",
    ):
        evaluated(store, model, LINES)
    with pytest.raises(UsageError, match="--index or --neighbors, not both"):
        evaluated(store, model, LINES, index=index, neighbors=neighbors)


def test_the_text_of_the_datastore_tokenized_again_does_not_see_its_own_rows(store, index):
    again = small_tokens(store, lengths={"train": 90, "test": 50})
    own, other = (
        metrics(evaluated(store, index, LINES, split="train", exclude="self", tokens=t))
        for t in (None, again)
    )
    assert own["perplexity"] == other["perplexity"]


@pytest.mark.parametrize("settings", [{"split": "train"}, {"tune_split": "train"}])
def test_text_of_the_datastore_is_refused_where_nothing_says_what_is_left_out(
    store, index, neighbors, settings
):
    spec, role = "external:k=6,lambda=tune", "scored" if "split" in settings else "tuned on"
    with pytest.raises(
        UsageError, match=f"made of 'train', the split that is {role}.*--exclude document, window:N"
    ):
        evaluated(store, index, spec, **settings)
    with pytest.raises(
        UsageError, match=f"{role}.*{neighbors.reference} leaves some out: --exclude self"
    ):
        evaluated(store, neighbors, spec, **settings)


@pytest.mark.parametrize("exclude", ["self", "window:3", "document"])
def test_what_is_left_out_is_not_found_and_is_told(store, index, exclude):
    searched = metrics(evaluated(store, index, LINES, split="train", exclude=exclude))
    stored = made(store, PrecomputeNeighbors(), NeighborsConfig(k=6, exclude=exclude), index)
    assert searched["exclude"] == exclude
    same = metrics(evaluated(store, stored, LINES, split="train", exclude=exclude))
    assert searched["nll"] == pytest.approx(same["nll"], abs=1e-6)
    with pytest.raises(
        UsageError, match=f"found with --exclude {exclude}: .*precompute-neighbors .*window:4"
    ):
        evaluated(store, stored, LINES, split="train", exclude="window:4")


def test_an_exclusion_that_nothing_needs_changes_no_report(store, index):
    report = evaluated(store, index, LINES)
    assert evaluated(store, index, LINES, exclude="document").reference == report.reference
    assert "exclude" not in metrics(report)


def test_the_configuration_is_checked_before_any_work():
    with pytest.raises(ValueError, match="did you mean 'lambda'"):
        EvaluateConfig(memory=("external:lamda=0.2",))
    with pytest.raises(ValueError, match="only the first reading may be joint"):
        EvaluateConfig(memory=("knn-lm", "trime-ext"))
    assert len(EvaluateConfig(memory=("trime-ext",)).memory) == 2
    assert EvaluateConfig(memory=("none",)).memory == ()


def test_the_verb_imports_without_torch_and_an_evaluation_opens_without_scipy():
    code = (
        "import sys, stages.evaluate; print({'torch', 'faiss'} & set(sys.modules));"
        "import stages.evaluation.opening, stages.evaluation.translations; print('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["set()", "False"], done.stderr


@pytest.mark.parametrize(("rows", "expected"), [(2_000_000, 110 << 20), (4_000_000, 0)])
def test_memory_covers_the_text_that_is_sorted_unless_there_is_too_much_of_it(rows, expected):
    tokens = SimpleNamespace(metrics={"splits": {"train": {"tokens": 7_000_000}}})
    read = {"tokens": tokens, "datastore": SimpleNamespace(metrics={"rows": rows})}
    assert matching_memory(Inputs(read)) == expected


@pytest.mark.parametrize("fewest", [3, 20])
def test_pointers_take_the_place_of_searches(store, model, index, monkeypatch, fewest):
    """Against a walk from token to token; where too many are wanted all are searched for."""
    limit(monkeypatch, tokens_per_shard=16)
    report = evaluated(
        store,
        index,
        f"external:k=20,lambda=0.3,temperature=2,pointers={fewest}",
        save_token_scores=True,
    )
    keys, values = (
        array(index.input("datastore"), "datastore.zarr", name) for name in ("keys", "values")
    )
    _, queries, ids = slow_plain(model, "test")
    rows, searches, want = np.zeros(0, int), 0, []
    for i, query in enumerate(queries):
        behind = [r + 1 for r in rows if i % 16 and values[r] == ids[i - 1] and r + 1 < len(values)]
        searches += len(behind) < fewest
        rows = np.array(
            behind if len(behind) >= fewest else oracle.neighbours(keys, query, 20, "l2")[0]
        )
        weights = np.exp(-((keys[rows].astype(float) - query) ** 2).sum(1) / 2)
        want.append((weights * (values[rows] == ids[i])).sum() / weights.sum())
    memory = np.exp(array(report, "scores.zarr", "logp_memory")[:, 0].astype(float))
    np.testing.assert_allclose(memory, want, rtol=2e-3, atol=1e-6)
    assert metrics(report)["searched_share"] == searches / len(ids)
    assert (searches == len(ids)) == (fewest == 20)
    (told,) = metrics(report)["memories"]
    assert told["pointers"] == fewest


def test_more_pointers_than_neighbours_are_refused(store, index):
    with pytest.raises(UsageError, match="pointers=20"):
        evaluated(store, index, "external:k=20,lambda=0.3,temperature=2,pointers=21")
