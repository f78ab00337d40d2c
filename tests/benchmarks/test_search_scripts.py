"""Scripts that measure search, indexes and shards run, on a few keys, so that they do when somebody
needs a figure.
"""

import argparse
import json
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.index import BuildIndex, IndexConfig
from stages.search import automatic
from stages.search.keys import StoredKeys
from stages.search.open import read_index
from tests.benchmarks import (
    bench_build_index,
    bench_compressed,
    bench_evaluate_search,
    bench_on_disk,
    bench_search,
    bench_workers,
)
from tests.benchmarks.artificial import Model, Tokens, artificial
from tests.benchmarks.borrowed import borrowed, excerpt
from tests.benchmarks.engines import Tried, fastest, others
from tests.benchmarks.test_artificial import SHAPE

ROWS = 1500


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """IVF-flat, of keys that a model with random weights makes."""
    store, cpu = Store(tmp_path_factory.mktemp("store")), Execution("cpu")
    tokens = artificial(store, Tokens(), {}, splits={"train": ROWS, "test": 300})
    model = artificial(
        store, Model(), {"tokens": tokens}, model={**SHAPE, "cutoffs": [100], "factor": 4}
    )
    datastore = make(
        BuildDatastore(), DatastoreConfig(), {"source": model.reference}, store, cpu
    ).artifact
    config = IndexConfig(index="ivf-flat", lists=16, probe=8, recall=0)
    return make(BuildIndex(), config, {"source": datastore.reference}, store, cpu).artifact


def root(index: Artifact) -> Any:
    return index.store.root


def given(**options: Any) -> argparse.Namespace:
    return argparse.Namespace(**options)


def test_neighbours_beside_plain_search_and_fast_scans(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(automatic, "FLAT_ROWS", 100)
    compressed = {"index": "ivf-pq", "lists": 8, "code_bytes": 4, "code_bits": 4, "probe": 2}
    monkeypatch.setattr(bench_search, "KNN_LM", compressed)
    monkeypatch.setattr(bench_search, "PARTS", 16)
    monkeypatch.setattr(bench_search, "SAMPLE", 50)
    bench_search.speed(640, rounds=1, block=200, profile=True)
    out = capsys.readouterr().out
    assert all(
        name in out
        for name in ("\nours ", "\nplain ", "\nfast scan ", "\nproducts ", "under the profiler")
    )


def test_compressed_keys(index: Artifact, capsys: pytest.CaptureFixture[str]) -> None:
    keys = StoredKeys(index.input("datastore").zarr("datastore.zarr")["keys"])
    lists = read_index(index.file("index.faiss"))
    made = bench_compressed.engines(lists, 8, keys, True, None)
    assert set(bench_compressed.engines(lists, 8, keys, False, None)) == {"ours", "faiss"}
    bench_compressed.compare(
        made, lists, keys, 4, given(queries=200, sample=50, recall="own", rounds=1, probe=8)
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    compared = {row["engine"]: row for row in rows if "ratio" in row}
    pq = {f"pq {codes} x 4" for codes in (2, 4)}
    assert set(compared) == {"ours", "faiss", "rabitq 1", "products", *pq}
    assert all(compared[name]["recall"] >= compared[name]["wanted"] for name in ("ours", "faiss"))


def test_evaluation_beside_faiss(index: Artifact) -> None:
    with borrowed(root(index)) as store:
        told = bench_evaluate_search.measure(
            store, given(index=index.reference, tokens=200, k=8, rounds=1)
        )
    assert told["tokens"] == 200
    assert told["shared"] == 1
    assert set(told["ratio"]) == {"plain", "faiss", "ours", "products", "plain + faiss"}


def test_building_beside_faiss(index: Artifact) -> None:
    options = given(store=root(index), index=index.reference, rounds=1)
    about, *parts = bench_build_index.measure(options)
    assert about["lists"] == 16
    assert [set(part) for part in parts] == [{"part", "ours", "faiss", "products"}] * 2 + [
        {"part", "ours", "faiss"}
    ]


def test_stages_with_workers(index: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes take seconds to start; that they make the same is tested elsewhere."""
    monkeypatch.setattr(bench_workers, "WORKERS", (1,))
    model, stages = index.find("encoder").reference, "build-datastore,precompute-neighbors,evaluate"
    sizes = {"tokens": 200, "scored": 100, "queries": "train,test"}
    options = given(model=model, index=index.reference, k=4, rounds=1, stages=stages, **sizes)
    with borrowed(root(index)) as store:
        told = list(bench_workers.measure(store, options))
    assert [(row["stage"], row["tokens"]) for row in told] == list(
        zip(stages.split(","), (200, 400, 100), strict=True)
    )


def test_keys_on_the_disk(
    index: Artifact, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "index.faiss"
    assert bench_on_disk.write(index.file("index.faiss"), 2, path) == 2 * ROWS
    np.save(tmp_path / "queries.npy", bench_on_disk.queries_of(index.file("index.faiss"), 20))
    bench_on_disk.search(tmp_path, "memory", 1.0, 2 * ROWS, 16, [4])
    bench_on_disk.compare(tmp_path, ["memory"], [4], 10)
    assert "recall 1.0000" in capsys.readouterr().out
    assert bench_on_disk.disk_rate(path) > 0


def test_borrowed_artifacts_stay_as_they_are(index: Artifact) -> None:
    before = sorted(root(index).rglob("*"))
    with borrowed(root(index)) as store:
        own = store.get(index.reference).find("encoder").input("tokens")
        few = excerpt(store, own, train=120, test=70)
        assert (
            few.zarr("tokens.zarr")["test/ids"][:].tolist()
            == own.zarr("tokens.zarr")["test/ids"][:70].tolist()
        )
        assert few.metrics["splits"]["train"]["tokens"] == 120
    assert sorted(root(index).rglob("*")) == before


def test_the_least_time_that_reaches_a_recall() -> None:
    found = [
        Tried({"probe": p, "factor": f}, r, s)
        for p, f, r, s in ((1, 1, 0.9, 1), (2, 4, 0.96, 3), (4, 2, 0.99, 2))
    ]
    assert fastest(found, 0.95).seconds == 2
    assert fastest(found, 0.999).recall == 0.99
    assert fastest([*found, Tried({"probe": 4, "factor": 4}, 0.99, 1)], 0.95).seconds == 2
    assert others(np.array([[5, 7, 9], [1, 2, 3]]), np.array([7, 4]), 2).tolist() == [
        [5, 9],
        [1, 2],
    ]
