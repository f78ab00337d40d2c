import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, UsageError
from stages.index import BuildIndex, IndexConfig
from stages.numbers import size
from stages.search import build
from stages.search.open import open_searcher
from tests.builders.limits import limit
from tests.oracles.search import nearest
from tests.stages.notes import Notes
from tests.stages.small_store import array, small_model, small_tokens

TRAIN = 700


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def datastore(store: Store, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """Keys of width 8 in ten shards, three of which make a part of the index."""
    limit(monkeypatch, shard_bytes=72 * 16, index_part_bytes=3 * 72 * 16)
    model = small_model(store, small_tokens(store, lengths={"train": TRAIN, "valid": 40}))
    return make(
        BuildDatastore(), DatastoreConfig(), {"source": model.reference}, store, Execution("cpu")
    ).artifact


def build_index(
    store: Store, datastore: Artifact, notes: Notes | None = None, **settings: Any
) -> Artifact:
    execution = Execution("cpu", reporter=notes or Notes())
    return make(
        BuildIndex(), IndexConfig(**settings), {"source": datastore.reference}, store, execution
    ).artifact


@pytest.mark.parametrize("index", ["auto", "ivf-flat", "IVF8,SQfp16", "hnsw"])
def test_finds_what_the_definition_finds(store: Store, datastore: Artifact, index: str) -> None:
    artifact = build_index(store, datastore, index=index, recall=50)
    keys = array(datastore, "datastore.zarr", "keys").astype(np.float32)
    searcher = open_searcher(
        artifact.file("index.faiss"),
        artifact.config,
        (artifact.metrics["rows"], artifact.metrics["dim"]),
    )
    ids, _ = searcher.search(keys[:40], 4)
    want, _ = nearest(keys[:40], keys, 4, "l2")
    assert (ids == want).mean() > (0.8 if index == "hnsw" else 0.999)
    assert searcher.rows == TRAIN


def test_states_what_was_chosen_and_measured(store: Store, datastore: Artifact) -> None:
    notes = Notes()
    artifact = build_index(store, datastore, notes)
    metrics = artifact.metrics
    assert artifact.config["index"] == "flat"
    assert metrics["automatic"]["index"] == "flat"
    why, costs = (
        metrics["automatic"]["why"],
        f"{size(TRAIN * 8 * 4)}; a query is compared with all keys",
    )
    assert notes.infos[0] == f"index flat: {why}. It costs {costs}"
    assert (metrics["rows"], metrics["dim"], metrics["lossless"]) == (TRAIN, 8, True)
    assert metrics["recall"] == {"1": 1, "4": 1, "8": 1, "64": 1}
    assert metrics["bytes"] == artifact.file("index.faiss").stat().st_size
    assert metrics["bytes_per_key"] == pytest.approx(metrics["bytes"] / TRAIN, abs=0.01)
    assert set(metrics["queries_per_second"]) == {"4", "64"}


def test_measuring_recall_shows_how_far_it_is_and_can_be_left_out(
    store: Store, datastore: Artifact
) -> None:
    notes = Notes()
    build_index(store, datastore, notes, index="ivf-flat", recall=20)
    assert {"20", f"{TRAIN}"} <= set(notes.infos[-1].split())
    assert notes.steps[0][0] == 0
    compared = [done for done, total in notes.steps if total == TRAIN]
    assert (len(compared), compared[-1]) == (10, TRAIN)
    notes = Notes()
    metrics = build_index(store, datastore, notes, index="ivf-flat", recall=0).metrics
    assert not {"recall", "recall_by_probe", "queries", "queries_per_second"} & metrics.keys()
    assert not any("recall" in told for told in notes.infos)


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"index": "flat"}, None),
        (
            {"index": "ivf-flat", "lists": 16, "train_keys": TRAIN},
            f"learning 16 lists from {TRAIN:,} keys (k-means)",
        ),
    ],
)
def test_what_takes_long_at_the_start_is_said_before(
    store: Store, datastore: Artifact, settings: dict[str, Any], told: str | None
) -> None:
    notes = Notes()
    build_index(store, datastore, notes, recall=0, **settings)
    assert [line for line in notes.infos if line.startswith("learning ")] == (
        [told] if told else []
    )


def test_codes_lose_some_neighbours_and_say_so(store: Store, datastore: Artifact) -> None:
    metrics = build_index(
        store, datastore, index="ivf-pq", code_bits=4, code_bytes=1, probe=1
    ).metrics
    assert not metrics["lossless"]
    assert metrics["recall"]["1"] < 1


def test_an_interrupted_build_goes_on_and_gives_the_same_bytes(
    store: Store, datastore: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"index": "ivf-pq", "code_bits": 4, "recall": 20}
    whole = build_index(store, datastore, **settings)
    expected = whole.file("index.faiss").read_bytes(), whole.metrics["recall"]
    store.remove(whole.reference)
    added: list[list[int]] = []
    real = build.write_part

    def dies_in_the_third(trained: Any, keys: Any, shards: Any, path: Path, wanted: Any) -> int:
        if len(added) == 2:
            path.write_bytes(b"half a part")
            raise KeyboardInterrupt
        added.append(list(shards))
        return real(trained, keys, shards, path, wanted)

    monkeypatch.setattr(build, "write_part", dies_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        build_index(store, datastore, **settings)
    added.append([])
    notes = Notes()
    again = build_index(store, datastore, notes, **settings)
    assert added == [[0, 1, 2], [3, 4, 5], [], [6, 7, 8], [9]]
    assert any("3 of 6" in info for info in notes.infos)
    assert (again.file("index.faiss").read_bytes(), again.metrics["recall"]) == expected
    assert {Path(file).parts[0] for file in again.manifest.files} == {"index.faiss"}


def test_an_index_of_something_else_than_a_datastore_is_refused(
    store: Store, datastore: Artifact
) -> None:
    with pytest.raises(ArtifactError, match="datastore"):
        build_index(store, datastore.input("encoder"))


def test_illegal_settings_leave_nothing_behind(store: Store, datastore: Artifact) -> None:
    with pytest.raises(UsageError, match="701 lists"):
        build_index(store, datastore, index="ivf-flat", lists=701)
    assert not (store.root / "index").exists()


def test_help_does_not_load_what_searches() -> None:
    code = "import sys, stages.index, stages.neighbors; print([m for m in ('torch', 'faiss', 'zarr') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch" not in done.stdout
    assert "faiss" not in done.stdout
