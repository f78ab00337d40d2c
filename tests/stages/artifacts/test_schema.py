"""Settings and figures that nobody could have written: each is damage, in words, before anything is computed."""

from collections.abc import Mapping
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import KINDS, STAGES
from stages.artifacts.make import make
from stages.artifacts.manifest import Manifest, wrong_manifest
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError
from stages.evaluate import Evaluate, EvaluateConfig
from stages.index import BuildIndex, IndexConfig
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


def written(made: Made, kind: str) -> Manifest:
    """A manifest as the stage of a kind writes it."""
    command = KINDS[kind].command
    manifest = made[kind].manifest.model_copy(update={"stage": command})
    if kind in ("tokens", "model"):  # of small stages, whose settings are others
        settings = {"steps": 1} if kind == "model" else {}
        manifest = manifest.model_copy(update={"config": STAGES.settings(command)(**settings).stored()})
    return manifest


@pytest.mark.parametrize("kind", READ)
def test_what_is_written_is_right(made: Made, kind: str) -> None:
    assert wrong_manifest(written(made, kind)) is None


@pytest.mark.parametrize(("kind", "part", "name"), [(k, p, n) for k in READ for p in READ[k] for n in READ[k][p]])
@pytest.mark.parametrize("value", ["removed", -1, 10**23, {"x": 1}, [3]])
def test_what_others_read_cannot_be_missing_or_nonsense(
    made: Made, kind: str, part: str, name: str, value: Any
) -> None:
    manifest = written(made, kind)
    facts = {one: found for one, found in getattr(manifest, part).items() if one != name}
    changed = manifest.model_copy(update={part: facts | ({} if value == "removed" else {name: value})})
    wrong = str(wrong_manifest(changed))
    assert wrong.startswith("manifest.json has") and name in wrong


def test_settings_that_a_stage_would_store_otherwise_are_damage(made: Made) -> None:
    manifest = written(made, "datastore")
    for change, words in (({"context": "8"}, "config.context"), ({"odd": 1}, "config.odd")):
        changed = manifest.model_copy(update={"config": manifest.config | change})
        assert words in str(wrong_manifest(changed))
    assert wrong_manifest(manifest.model_copy(update={"kind": "index"}))


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
    manifest = written(made, "model")
    changed = manifest.model_copy(update={"metrics": manifest.metrics | told})
    assert (wrong_manifest(changed) is None) == right


def test_a_part_that_this_process_does_not_know_is_no_damage(made: Made) -> None:
    manifest = written(made, "model")
    theirs = {"backbone": "transformer-xl", "attention": {"name": "mine", "slots": 8}}
    changed = manifest.model_copy(update={"config": manifest.config | {"model": theirs}})
    with pytest.raises(ArtifactError) as told:
        wrong_manifest(changed)
    assert "'mine'" in str(told.value) and "MEMLM_PARTS" in str(told.value)
    assert "damaged" not in str(told.value)


def test_rows_of_no_split_are_damage(made: Made) -> None:
    datastore = made["datastore"]
    restate(datastore.path, lambda manifest: manifest["config"].update(split=None))
    with pytest.raises(ArtifactError, match=r"config\.split"):
        Store(datastore.path.parent.parent).get(datastore.reference)
