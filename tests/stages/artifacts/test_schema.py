"""Settings and figures that nobody could have written: each is damage, in words, before anything is
computed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import KINDS, STAGES
from stages.artifacts.make import make
from stages.artifacts.manifest import Manifest, UncheckedArtifact, identity, wrong_manifest
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError
from stages.evaluate import Evaluate, EvaluateConfig
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from tests.stages.artifacts.toy import Cubes, Squares, SquaresConfig, restate
from tests.stages.small_store import small_model, small_tokens

Made = Mapping[str, Artifact]
READ = {
    "tokens": {"metrics": ("splits", "vocabulary_size", "eos_id", "eos_after", "tokenizer")},
    "model": {"config": ("model", "method", "segment_length"), "metrics": ("parameters",)},
    "datastore": {
        "config": ("split", "key", "dtype", "context", "stride"),
        "metrics": ("rows", "dim", "dtype"),
    },
    "index": {
        "config": ("index", "metric", "probe"),
        "metrics": ("rows", "dim", "lossless", "bytes"),
    },
    "neighbors": {
        "config": ("queries", "k", "exclude", "exact", "candidates", "probe"),
        "metrics": ("splits",),
    },
    "report": {
        "config": ("split", "score", "reset"),
        "metrics": ("rows", "method", "split", "score", "memories"),
    },
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
        manifest = manifest.model_copy(
            update={"config": STAGES.settings(command)(**settings).stored()}
        )
    id = identity(
        command,
        manifest.format_version,
        manifest.settings(),
        manifest.inputs,
        manifest.outside_files,
    )
    return manifest.model_copy(update={"id": id})


@pytest.mark.parametrize("kind", READ)
def test_what_is_written_is_right(made: Made, kind: str) -> None:
    assert wrong_manifest(written(made, kind)) is None


def refusal(manifest: Manifest) -> str:
    """Why a manifest is refused, as damage or as unknown here; empty: it is not."""
    try:
        return wrong_manifest(manifest) or ""
    except UncheckedArtifact as error:
        return str(error)


NONSENSE = (-1, 10**23, {"x": 1}, [3])


@pytest.mark.parametrize(
    ("kind", "part", "name"), [(k, p, n) for k in READ for p in READ[k] for n in READ[k][p]]
)
def test_what_others_read_cannot_be_nonsense_nor_a_metric_be_missing(
    made: Made, kind: str, part: str, name: str
) -> None:
    manifest = written(made, kind)
    facts = {one: found for one, found in getattr(manifest, part).items() if one != name}
    others = [facts | {name: value} for value in NONSENSE] + ([facts] if part == "metrics" else [])
    for other in others:
        assert name in refusal(manifest.model_copy(update={part: other}))


def test_settings_that_a_stage_would_store_otherwise_are_damage(made: Made) -> None:
    manifest = written(made, "datastore")
    changed = manifest.model_copy(update={"config": manifest.config | {"context": "8"}})
    assert "config.context" in str(wrong_manifest(changed))
    assert wrong_manifest(manifest.model_copy(update={"kind": "index"}))


@pytest.mark.parametrize("kind", READ)
def test_a_setting_that_a_manifest_lacks_is_at_its_default_and_its_id_tells_others(
    made: Made, kind: str
) -> None:
    manifest = written(made, kind)
    chosen = manifest.settings().canonical()
    for name in manifest.config:
        lacking = {one: value for one, value in manifest.config.items() if one != name}
        older = manifest.model_copy(update={"config": lacking})
        if name in chosen:
            assert refusal(older)
        else:
            assert wrong_manifest(older) is None
            assert older.full_config() == manifest.config


def test_a_setting_of_a_part_may_have_come_later_too(made: Made) -> None:
    manifest = written(made, "model")
    of_model = {
        name: value for name, value in manifest.config["model"].items() if name != "dropout"
    }
    older = manifest.model_copy(update={"config": manifest.config | {"model": of_model}})
    assert wrong_manifest(older) is None
    assert older.full_config() == manifest.config


@pytest.mark.parametrize("below", [False, True])
def test_a_setting_that_this_version_does_not_know_was_made_by_another(
    made: Made, below: bool
) -> None:
    manifest = written(made, "model")
    config = (
        {**manifest.config, "model": {**manifest.config["model"], "odd": 1}}
        if below
        else {"odd": 1}
    )
    with pytest.raises(UncheckedArtifact, match="odd") as refused:
        wrong_manifest(manifest.model_copy(update={"config": manifest.config | config}))
    assert "damaged" not in str(refused.value)


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
def test_how_a_training_ended_is_there_whole_or_not_at_all(
    made: Made, told: dict[str, Any], right: bool
) -> None:
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


class LaterConfig(SquaresConfig):
    """The settings of `Squares` in a version to come."""

    wider: int = 1


def test_a_setting_added_later_leaves_what_was_made_before_it_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    squares = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    cubes = make(
        Cubes(), SquaresConfig(), {"source": squares.reference}, store, Execution()
    ).artifact

    monkeypatch.setattr(Squares, "Config", LaterConfig)
    found = store.get(squares.reference)
    store.check_files(found, every_byte=True)
    assert found.config == {"length": 10, "rows": 3, "wider": 1}
    assert make(Squares(), LaterConfig(), {}, store, Execution()).status == "cached"
    assert make(Squares(), LaterConfig(wider=2), {}, store, Execution()).status == "made"
    assert store.get(cubes.reference).input("squares").digest == squares.digest
    later = make(
        Cubes(), SquaresConfig(length=4), {"source": squares.reference}, store, Execution()
    )
    assert (later.status, later.artifact.input("squares").id) == ("made", squares.id)

    newer = make(Squares(), LaterConfig(length=5), {}, store, Execution()).artifact
    monkeypatch.undo()
    for every_byte in (False, True):
        with pytest.raises(UncheckedArtifact, match="wider"):
            store.check_files(newer, every_byte=every_byte)


def test_rows_of_no_split_are_damage(made: Made) -> None:
    datastore = made["datastore"]
    restate(datastore.path, lambda manifest: manifest["config"].update(split=None))
    with pytest.raises(ArtifactError, match=r"config\.split"):
        Store(datastore.path.parent.parent).get(datastore.reference)
