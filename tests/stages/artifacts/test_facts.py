"""Settings and figures that nobody could have written: each is damage, in words, before anything is computed."""

from collections.abc import Mapping
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.facts import wrong_facts
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError
from stages.evaluate import Evaluate, EvaluateConfig
from stages.index import BuildIndex, IndexConfig
from stages.lineage.sources import sources_of
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from tests.stages.artifacts.toy import restate
from tests.stages.small_store import small_model, small_tokens

Made = Mapping[str, Artifact]
READ = {
    "tokens": {"metrics": ("splits", "vocabulary_size", "eos_id", "eos_after", "tokenizer")},
    "model": {"config": ("model", "method", "segment_length"), "metrics": ("parameters",)},
    "datastore": {"config": ("split", "key", "dtype", "context", "stride"), "metrics": ("rows", "dim", "dtype")},
    "index": {"config": ("index", "metric", "probe"), "metrics": ("rows", "dim", "lossless", "bytes")},
    "neighbors": {"config": ("queries", "k", "exclude", "exact", "candidates", "probe"), "metrics": ("splits",)},
    "report": {"config": ("split", "score", "reset"), "metrics": ("rows", "method", "split", "score", "memories")},
}
"""What other commands read of a manifest."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    store = Store(tmp_path_factory.mktemp("facts"))

    def next_of(stage: Any, config: Any, source: Artifact) -> Artifact:
        return make(stage, config, {"source": source.reference}, store, Execution("cpu")).artifact

    tokens = small_tokens(store)
    model = small_model(store, tokens)
    datastore = next_of(BuildDatastore(), DatastoreConfig(), model)
    index = next_of(BuildIndex(), IndexConfig(index="flat"), datastore)
    neighbors = next_of(PrecomputeNeighbors(), NeighborsConfig(queries=("valid",), k=2), index)
    report = next_of(Evaluate(), EvaluateConfig(split="valid"), neighbors)
    return {one.kind: one for one in (tokens, model, datastore, index, neighbors, report)}


@pytest.mark.parametrize("kind", READ)
def test_what_is_written_is_right(made: Made, kind: str) -> None:
    assert wrong_facts(made[kind].manifest) is None


@pytest.mark.parametrize(("kind", "part", "name"), [(k, p, n) for k in READ for p in READ[k] for n in READ[k][p]])
@pytest.mark.parametrize("value", ["removed", -1, 10**23, {"x": 1}, [3]])
def test_what_others_read_cannot_be_missing_or_nonsense(
    made: Made, kind: str, part: str, name: str, value: Any
) -> None:
    manifest = made[kind].manifest
    facts = {one: found for one, found in getattr(manifest, part).items() if one != name}
    changed = manifest.model_copy(update={part: facts | ({} if value == "removed" else {name: value})})
    assert f"manifest.json has {part}.{name}" in str(wrong_facts(changed))


@pytest.mark.parametrize("memory", [None, {}, {"key": "hidden"}])
def test_a_gate_without_a_number_of_neighbours_is_damage(made: Made, memory: dict[str, str] | None) -> None:
    manifest = made["model"].manifest
    gated = manifest.config | {"model": manifest.config["model"] | {"gate": "vector"}}

    def wrong(reading: dict[str, Any] | None) -> str | None:
        return wrong_facts(manifest.model_copy(update={"config": gated | {"memory": reading}}))

    assert wrong({"k": 4}) is None
    assert "a gate, and no memory.k" in str(wrong(memory))


@pytest.mark.parametrize(
    ("told", "right"),
    [
        ({"passes": 2, "still_falling": None}, True),
        ({"passes": 0.5, "still_falling": True}, True),
        ({"passes": 0.5}, False),
        ({"still_falling": True}, False),
        ({"passes": None, "still_falling": True}, False),
        ({"passes": 0.5, "still_falling": 3}, False),
    ],
)
def test_how_a_training_ended_is_there_whole_or_not_at_all(made: Made, told: dict[str, Any], right: bool) -> None:
    manifest = made["model"].manifest
    changed = manifest.model_copy(update={"metrics": manifest.metrics | told})
    assert (wrong_facts(changed) is None) == right


def test_rows_of_no_split_are_damage(made: Made) -> None:
    datastore = made["datastore"]
    restate(datastore.path, lambda manifest: manifest["config"].update(split=None))
    changed = Store(datastore.path.parent.parent).get(datastore.reference)
    with pytest.raises(ArtifactError, match=r"is damaged: manifest\.json has no config\.split"):
        sources_of(changed)
