"""Two processes make, byte for byte, what one makes."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import pack
from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import is_log
from stages.artifacts.make import chains_of, make
from stages.artifacts.stage import Execution, Stage
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.pack import PackBatches, PackConfig
from tests.stages.small_store import VOCABULARY, small_model, small_tokens

LSTM = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 1, "width": 8, "dropout": 0.0}
MEMORY = ("external:k=3,lambda=tune",)
LEARNED = ("external:k=3,lambda=learned",)
PAST = ("long:size=20,theta=0.3/1,lambda=tune",)


@pytest.fixture(scope="module")
def small_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.artifacts.arrays.TARGET_SHARD_BYTES", 72 * 16)
        patch.setattr("stages.index.PART_BYTES", 72 * 16)
        patch.setattr("stages.neighbors.FEWEST_QUERIES", 48)
        patch.setattr("stages.neighbors.MOST_QUERIES", 48)
        patch.setitem(pack.SEGMENTS, "fast", 8)
        patch.setattr("stages.evaluation.plan.MOST_TOKENS_PER_SHARD", 16)
        yield


def run(store: Store, stage: Stage[Any], config: Any, source: str, workers: int = 1) -> Artifact:
    return make(stage, config, {"source": source}, store, Execution("cpu", workers=workers)).artifact


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, small_shards: None) -> dict[str, Artifact]:
    """One artifact of each stage whose shards may stand alone, made by one process; and one in a chain."""
    store = Store(tmp_path_factory.mktemp("one") / "store")
    tokens = small_tokens(store, lengths={"train": 220, "valid": 40, "test": 50})
    model, lstm = small_model(store, tokens), small_model(store, tokens, model=LSTM)
    datastore = run(store, BuildDatastore(), DatastoreConfig(), model.reference)
    index = run(store, BuildIndex(), IndexConfig(index="ivf-flat"), datastore.reference)
    part = run(store, BuildDatastore(), DatastoreConfig(fraction=0.5), lstm.reference)
    index_of_part = run(store, BuildIndex(), IndexConfig(index="flat"), part.reference)
    return {
        "tokens": tokens,
        "model": model,
        "lstm": lstm,
        "datastore": datastore,
        "index": index,
        "neighbors": run(store, PrecomputeNeighbors(), NeighborsConfig(), index.reference),
        "batches": run(store, PackBatches(), PackConfig(segment_length=8), tokens.reference),
        "report": run(store, Evaluate(), EvaluateConfig(memory=MEMORY, save_token_scores=True), index.reference),
        "learned": run(store, Evaluate(), EvaluateConfig(memory=LEARNED, save_token_scores=True), index.reference),
        "index of part": index_of_part,
        "neighbors of a stream": run(store, PrecomputeNeighbors(), NeighborsConfig(), index_of_part.reference),
        "report of a stream": run(
            store, Evaluate(), EvaluateConfig(memory=PAST, save_token_scores=True), lstm.reference
        ),
    }


def case(kind: str, stage: Stage[Any], config: Any, source: str, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(kind, stage, config, source, id=kind.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize(
    ("kind", "stage", "config", "source"),
    [
        case("datastore", BuildDatastore(), DatastoreConfig(), "model"),
        case("learned", Evaluate(), EvaluateConfig(memory=LEARNED, save_token_scores=True), "index"),
        case("batches", PackBatches(), PackConfig(segment_length=8), "tokens", pytest.mark.endurance),
        case("neighbors of a stream", PrecomputeNeighbors(), NeighborsConfig(), "index of part", pytest.mark.endurance),
        case("index", BuildIndex(), IndexConfig(index="ivf-flat"), "datastore", pytest.mark.endurance),
        case("neighbors", PrecomputeNeighbors(), NeighborsConfig(), "index", pytest.mark.endurance),
        case(
            "report", Evaluate(), EvaluateConfig(memory=MEMORY, save_token_scores=True), "index", pytest.mark.endurance
        ),
        case(
            "report of a stream",
            Evaluate(),
            EvaluateConfig(memory=PAST, save_token_scores=True),
            "lstm",
            pytest.mark.endurance,
        ),
    ],
)
def test_two_workers_make_what_one_makes(
    made: dict[str, Artifact], tmp_path: Path, kind: str, stage: Stage[Any], config: Any, source: str
) -> None:
    one = made[kind]
    shutil.copytree(one.store.root, tmp_path / "store")
    store = Store(tmp_path / "store")
    store.remove(one.reference)
    two = run(store, stage, config, made[source].reference, workers=2)
    assert two.reference == one.reference
    assert _bytes(two) == _bytes(one)
    assert len(_bytes(two)) > 1 or kind == "index"


def _bytes(artifact: Artifact) -> dict[str, Any]:
    return {name: entry for name, entry in artifact.manifest.files.items() if not is_log(name)}


def test_a_backbone_that_carries_state_is_read_by_one_worker(
    made: dict[str, Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr("stages.artifacts.executors.processes.Worker", _counting(started))
    whole = run(made["lstm"].store, BuildDatastore(), DatastoreConfig(), made["lstm"].reference)
    shutil.copytree(whole.store.root, tmp_path / "store")
    store = Store(tmp_path / "store")
    store.remove(whole.reference)
    assert _bytes(run(store, BuildDatastore(), DatastoreConfig(), made["lstm"].reference, workers=2)) == _bytes(whole)
    assert len(started) == 1


def _counting(started: list[Any]) -> type:
    from stages.artifacts.executors.processes import Worker

    class Counted(Worker):
        def __init__(self, task: Any) -> None:
            started.append(task)
            super().__init__(task)

    return Counted


def test_carried_entries_of_the_past_make_a_chain_of_each_phase(made: dict[str, Artifact], tmp_path: Path) -> None:
    chains: list[list[int]] = []

    class Seen(Exception):
        pass

    class Listing(Evaluate):
        def plan(self, job: Any) -> Any:
            parts = super().plan(job).shards
            phases = [[p for p in parts if p.phase == phase] for phase in ("tune", "score")]
            chains.append([len(chains_of(phase)) for phase in phases])
            raise Seen

    for memory in (MEMORY, ("long:size=20,theta=0.3,lambda=tune",)):
        with pytest.raises(Seen):
            run(made["index"].store, Listing(), EvaluateConfig(memory=memory), made["index"].reference)
    assert chains == [[3, 4], [1, 1]]
