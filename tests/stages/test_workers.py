"""Two processes make, byte for byte, what one makes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import is_log
from stages.artifacts.make import chains_of, make
from stages.artifacts.stage import Execution, Stage
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.work import EvaluateWork
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.pack import PackBatches, PackConfig
from stages.packing import work as pack
from tests.builders.limits import limit
from tests.stages.small_store import VOCABULARY, small_model, small_tokens

LSTM = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 1, "width": 8, "dropout": 0.0}
MEMORY = ("external:k=3,lambda=tune",)
LEARNED = ("external:k=3,lambda=learned",)
PAST = ("long:size=20,theta=0.3/1,lambda=tune",)


@pytest.fixture(scope="module")
def small_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, shard_bytes=72 * 16, index_part_bytes=72 * 16)
        patch.setattr("stages.indexing.layouts.FEWEST_QUERIES", 48)
        patch.setattr("stages.indexing.layouts.MOST_QUERIES", 48)
        patch.setitem(pack.SEGMENTS, "fast", 8)
        limit(patch, tokens_per_shard=16)
        yield


def run(store: Store, stage: Stage[Any], config: Any, source: str, workers: int = 1) -> Artifact:
    return make(
        stage, config, {"source": source}, store, Execution("cpu", workers=workers)
    ).artifact


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, small_shards: None) -> Store:
    """A store in which one process makes everything."""
    return Store(tmp_path_factory.mktemp("one") / "store")


SOURCES: dict[str, tuple[Stage[Any], Any, str]] = {
    "datastore": (BuildDatastore(), DatastoreConfig(), "model"),
    "index": (BuildIndex(), IndexConfig(index="ivf-flat"), "datastore"),
    "part": (BuildDatastore(), DatastoreConfig(fraction=0.5), "lstm"),
    "index of part": (BuildIndex(), IndexConfig(index="flat"), "part"),
}


def source(store: Store, name: str) -> Artifact:
    """What a stage reads, made where it is not there."""
    tokens = small_tokens(store, lengths={"train": 220, "valid": 40, "test": 50})
    if name in SOURCES:
        stage, config, read = SOURCES[name]
        return run(store, stage, config, source(store, read).reference)
    return (
        tokens
        if name == "tokens"
        else small_model(store, tokens, **({"model": LSTM} if name == "lstm" else {}))
    )


def seldom(kind: str, stage: Stage[Any], config: Any, read: str) -> Any:
    return pytest.param(stage, config, read, id=kind, marks=pytest.mark.endurance)


@pytest.mark.parametrize(
    ("stage", "config", "read"),
    [
        pytest.param(
            Evaluate(),
            EvaluateConfig(memory=LEARNED, save_token_scores=True),
            "index",
            id="learned",
        ),
        seldom("datastore", BuildDatastore(), DatastoreConfig(), "model"),
        seldom("batches", PackBatches(), PackConfig(segment_length=8), "tokens"),
        seldom("neighbors-of-a-stream", PrecomputeNeighbors(), NeighborsConfig(), "index of part"),
        seldom("index", BuildIndex(), IndexConfig(index="ivf-flat"), "datastore"),
        seldom("neighbors", PrecomputeNeighbors(), NeighborsConfig(), "index"),
        seldom(
            "report", Evaluate(), EvaluateConfig(memory=MEMORY, save_token_scores=True), "index"
        ),
        seldom(
            "report-of-a-stream",
            Evaluate(),
            EvaluateConfig(memory=PAST, save_token_scores=True),
            "lstm",
        ),
    ],
)
def test_two_workers_make_what_one_makes(
    one: Store, tmp_path: Path, stage: Stage[Any], config: Any, read: str
) -> None:
    alone = run(one, stage, config, source(one, read).reference)
    shutil.copytree(one.root, tmp_path / "store")
    store = Store(tmp_path / "store")
    store.remove(alone.reference)
    two = run(store, stage, config, source(one, read).reference, workers=2)
    assert two.reference == alone.reference
    assert _bytes(two) == _bytes(alone)
    assert len(_bytes(two)) > 1 or isinstance(stage, BuildIndex)


def _bytes(artifact: Artifact) -> dict[str, Any]:
    return {name: entry for name, entry in artifact.manifest.files.items() if not is_log(name)}


def test_a_backbone_that_carries_state_is_read_by_one_worker(
    one: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr("stages.artifacts.executors.processes.Worker", _counting(started))
    lstm = source(one, "lstm").reference
    whole = run(one, BuildDatastore(), DatastoreConfig(), lstm)
    shutil.copytree(one.root, tmp_path / "store")
    store = Store(tmp_path / "store")
    store.remove(whole.reference)
    assert _bytes(run(store, BuildDatastore(), DatastoreConfig(), lstm, workers=2)) == _bytes(whole)
    assert len(started) == 1


def _counting(started: list[Any]) -> type:
    from stages.artifacts.executors.processes import Worker

    class Counted(Worker):
        def __init__(self, task: Any) -> None:
            started.append(task)
            super().__init__(task)

    return Counted


def test_carried_entries_of_the_past_make_a_chain_of_each_phase(one: Store) -> None:
    chains: list[list[int]] = []

    class Seen(Exception):
        pass

    class ListedWork(EvaluateWork):
        def plan(self, job: Any) -> Any:
            parts = super().plan(job).shards
            phases = [[p for p in parts if p.phase == phase] for phase in ("tune", "score")]
            chains.append([len(chains_of(phase)) for phase in phases])
            raise Seen

    class Listing(Evaluate):
        def work(self, config: EvaluateConfig) -> EvaluateWork:
            return ListedWork()

    for memory in (MEMORY, ("long:size=20,theta=0.3,lambda=tune",)):
        with pytest.raises(Seen):
            run(one, Listing(), EvaluateConfig(memory=memory), source(one, "index").reference)
    assert chains == [[3, 4], [1, 1]]
