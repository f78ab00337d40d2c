"""Adaptive k and λ through the stage, against numpy one position at a time; and in dense
distributions.
"""

import math

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.index import BuildIndex
from stages.search.config import IndexConfig
from tests.builders.evaluations import evaluated, made, metrics, slow_plain
from tests.builders.limits import limit
from tests.oracles import adaptive as oracle
from tests.oracles import knn_lm
from tests.oracles import learned_weight as features
from tests.stages.small_store import array

K, TAU = 6, 2.0
SPEC = f"external:k={K},lambda=adaptive,temperature={TAU:g}"


@pytest.fixture(scope="module")
def index(store: Store, model: Artifact) -> Artifact:
    return made(
        store,
        BuildIndex(),
        IndexConfig(index="flat"),
        made(store, BuildDatastore(), DatastoreConfig(), model),
    )


def test_every_token_is_read_with_the_neighbours_of_its_context(
    store, model, index, monkeypatch
) -> None:
    limit(monkeypatch, min_positions_of_fit=1, errors_of_gain=-math.inf)
    report = evaluated(store, index, SPEC, save_token_scores=True)
    found, datastore = report.json("choice-network.json"), index.input("datastore")
    assert found["numbers"] == [1, 2, 4, 6] and found["network"] is not None
    keys, values = (array(datastore, "datastore.zarr", name) for name in ("keys", "values"))
    _, queries, ids = slow_plain(model, "test")
    wanted, seen = [], []
    for p, query, target in zip(
        np.exp(array(report, "scores.zarr", "logp_lm")), queries, ids, strict=True
    ):
        rows, distances = knn_lm.neighbours(keys, query, K, "l2")
        scores = -distances / TAU
        seen.append(
            oracle.weights(
                found["network"], features.of_neighbors(scores.tolist(), values[rows].tolist())[:13]
            )
        )
        wanted.append(
            oracle.probability(float(p), scores, values[rows] == target, found["numbers"], seen[-1])
        )
    np.testing.assert_allclose(np.exp(array(report, "scores.zarr", "logp")), wanted, rtol=2e-4)
    assert np.std(seen, axis=0).max() > 1e-3  # weights differ between contexts
    shown = metrics(report)
    assert [row["row"] for row in shown["rows"]] == ["plain", "knn-lm (adaptive λ)", "knn-lm"]
    assert shown["memories"][0]["policy"] == "adaptive"


def test_a_context_that_finds_nothing_is_read_by_the_model_alone(store, index, monkeypatch) -> None:
    limit(monkeypatch, min_positions_of_fit=1, errors_of_gain=-math.inf)
    settings = {"split": "train", "exclude": "window:1000", "save_token_scores": True}
    report = evaluated(store, index, SPEC, **settings)
    assert report.json("choice-network.json")["network"] is not None
    alone, final = (array(report, "scores.zarr", name) for name in ("logp_lm", "logp"))
    np.testing.assert_array_equal(final, alone)


def test_without_a_gain_one_number_for_all_is_read(store, index) -> None:
    """Forty tokens are too few to learn from."""
    # Another report than that of patched limits.
    report = evaluated(store, index, SPEC, save_token_scores=False)
    assert report.json("choice-network.json")["network"] is None
    adaptive, for_all = metrics(report)["rows"][1:]
    assert adaptive["perplexity"] == pytest.approx(for_all["perplexity"], rel=1e-6)
