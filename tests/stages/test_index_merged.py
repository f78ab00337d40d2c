"""Indexes in which rows are merged, or left out: what they hold, how they are read, and what they
are not read for.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.index import BuildIndex, IndexConfig
from stages.lineage.indexes import row_counts
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.search.open import open_searcher
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.builders.evaluations import slow_plain
from tests.builders.limits import limit
from tests.oracles import knn_lm as oracle
from tests.stages.kills import made_in_pieces
from tests.stages.small_store import array, small_model, small_tokens
from tests.stages.small_text import built_index

LISTS = {"index": "IVF4,SQfp16", "probe": 4}


@pytest.fixture(scope="module")
def whole(store: Store) -> Artifact:
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, shard_bytes=72 * 16)
        return built_index(
            store, small_model(store, small_tokens(store, lengths={"train": 300, "valid": 40}))
        )


@pytest.fixture(scope="module")
def neighbors(store: Store, whole: Artifact) -> Artifact:
    return made(store, PrecomputeNeighbors(), NeighborsConfig(k=9, queries=("train",)), whole)


@pytest.fixture(scope="module")
def merged(store: Store, whole: Artifact, neighbors: Artifact) -> Artifact:
    return built(store, whole, neighbors)


def made(store: Store, stage: Any, config: Any, source: Artifact, **references: str) -> Artifact:
    given = {"source": source.reference, **references}
    return make(stage, config, given, store, Execution("cpu")).artifact


def built(store: Store, whole: Artifact, merge: Artifact | None, **settings: Any) -> Artifact:
    references = {} if merge is None else {"merge": merge.reference}
    config = IndexConfig(**{**LISTS, **settings})
    return made(store, BuildIndex(), config, whole.input("datastore"), **references)


def test_each_row_is_held_or_counted_in_one_that_is(
    merged: Artifact, whole: Artifact, neighbors: Artifact
) -> None:
    counts, rows = row_counts(merged), whole.metrics["rows"]
    assert counts is not None and counts.sum() == rows == merged.metrics["rows"]
    assert merged.metrics["held"] == np.count_nonzero(counts) < 0.9 * rows
    values, found = (
        array(whole.input("datastore"), "datastore.zarr", "values"),
        array(neighbors, "neighbors.zarr", "train/ids"),
    )
    for row in np.flatnonzero(counts > 1).tolist():
        near = found[row][values[found[row]] == values[row]]
        assert counts[row] - 1 <= np.count_nonzero(counts[near] == 0)
    searcher = open_searcher(
        merged.file("index.faiss"),
        merged.config,
        (rows, merged.metrics["dim"]),
        num_rows=merged.metrics["held"],
    )
    keys = array(whole.input("datastore"), "datastore.zarr", "keys").astype(np.float32)
    ids, _ = searcher.search(keys[:5], merged.metrics["held"])
    assert all(sorted(one) == np.flatnonzero(counts).tolist() for one in ids.tolist())


def test_it_is_read_as_the_definition_reads_it(
    store: Store, whole: Artifact, merged: Artifact
) -> None:
    datastore, k, temperature, weight = whole.input("datastore"), 6, 2.0, 0.3
    counts = row_counts(merged)
    assert counts is not None
    held = np.flatnonzero(counts)
    keys, values = (array(datastore, "datastore.zarr", name) for name in ("keys", "values"))
    log_p, queries, ids = slow_plain(datastore.input("encoder"), "valid")
    total = 0.0
    for query, own, target in zip(queries, log_p, ids, strict=True):
        near, distances = oracle.neighbours(keys[held], query, k, "l2")
        weights = counts[held[near]] * np.exp(-(distances - distances.min()) / temperature)
        p_memory = weights[values[held[near]] == target].sum() / weights.sum()
        total -= oracle.log_prob(math.exp(own), p_memory, weight)
    memory = f"external:k={k},lambda={weight},temperature={temperature:g},exact=true"
    report = made(store, Evaluate(), EvaluateConfig(memory=(memory,), split="valid"), merged)
    assert report.json("metrics.json")["rows"][1]["perplexity"] == pytest.approx(
        math.exp(total / len(ids)), rel=1e-4
    )


def test_a_share_of_the_rows_is_held(store: Store, whole: Artifact) -> None:
    counts = row_counts(built(store, whole, None, keep=0.25))
    assert counts is not None and counts.max() == 1 and counts.sum() == whole.metrics["rows"] // 4
    assert row_counts(whole) is None


def test_killed_at_any_step_it_ends_with_the_same_bytes(
    whole: Artifact,
    neighbors: Artifact,
    merged: Artifact,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import shutil

    shutil.copytree(whole.store.root, tmp_path / "store")
    store = Store(tmp_path / "store")
    shutil.rmtree(store.folder("index", merged.id))
    again, _ = made_in_pieces(monkeypatch, lambda: built(store, whole, neighbors), logged=False)
    assert again.manifest.files == merged.manifest.files


@pytest.mark.parametrize(
    "settings", [{"index": "flat"}, {"index": "exact"}, {"keep": 0.5}, {"recall": 50}]
)
def test_what_cannot_be_merged_is_refused(
    store: Store, whole: Artifact, neighbors: Artifact, settings: dict[str, Any]
) -> None:
    source = whole.input("datastore") if settings.get("index") != "exact" else whole.find("corpus")
    with pytest.raises(UsageError):
        made(
            store,
            BuildIndex(),
            IndexConfig(**{**LISTS, "probe": "auto", **settings}),
            source,
            merge=neighbors.reference,
        )


def test_it_is_not_read_for_what_needs_all_rows(
    store: Store, whole: Artifact, merged: Artifact
) -> None:
    with pytest.raises(ArtifactError):
        made(store, PrecomputeNeighbors(), NeighborsConfig(), merged)
    for settings in (
        {"memory": ("external:k=4,lambda=0.3,temperature=2,pointers=2",), "split": "valid"},
        {"memory": ("external:k=4,lambda=0.3,temperature=2",), "split": "train", "exclude": "self"},
    ):
        with pytest.raises(ArtifactError):
            made(store, Evaluate(), EvaluateConfig(**settings), merged)


def test_rows_are_merged_by_their_own_neighbors_alone(store: Store, whole: Artifact) -> None:
    of_valid = made(store, PrecomputeNeighbors(), NeighborsConfig(k=4, queries=("valid",)), whole)
    with pytest.raises(ArtifactError, match="precompute-neighbors"):
        built(store, whole, of_valid)
    forgets = UpdateConfig(forget=("0",))
    changed = made(store, UpdateDatastore(), forgets, whole.input("datastore"))
    with pytest.raises(
        ArtifactError, match="--keep"
    ):  # of it there are no neighbours that would do
        made(store, BuildIndex(), IndexConfig(**LISTS), changed, merge=of_valid.reference)
