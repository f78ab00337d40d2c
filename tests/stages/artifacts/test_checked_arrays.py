"""Odd content behind right hashes: every array is compared with its manifest, and every value with its range."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import file_entry
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.training.config import TrainConfig
from tests.stages.artifacts.toy import restate
from tests.stages.small_store import VOCABULARY, small_model, small_tokens

IDS = "tokens.zarr/train/ids"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def tokens(store: Store) -> Artifact:
    return small_tokens(store)


def signed(artifact: Artifact, *files: Path) -> Artifact:
    """The artifact with its manifest restated for changed files."""
    entries = {file.as_posix(): file_entry(artifact.path / file) for file in files}

    def change(content: dict[str, Any]) -> None:
        there = {file: entry for file, entry in content["files"].items() if (artifact.path / file).is_file()}
        content["files"] = there | entries

    restate(artifact.path, change)
    return Store(artifact.path.parent.parent).get(artifact.reference)


def rewritten(artifact: Artifact, name: str, values: np.ndarray) -> Artifact:
    layout = ArrayLayout(name, values.shape, values.dtype, 1 << 20)
    (artifact.path / name / "zarr.json").unlink()
    files = layout.create(artifact.path)
    return signed(artifact, *files, layout.write(artifact.path, 0, values))


def relaid(artifact: Artifact, name: str, change: Callable[[dict[str, Any]], Any]) -> Artifact:
    """The artifact with other metadata of an array."""
    file = Path(name, "zarr.json")
    content = json.loads((artifact.path / file).read_text())
    change(content)
    (artifact.path / file).write_text(json.dumps(content))
    return signed(artifact, file)


def test_what_was_written_is_read(tokens: Artifact) -> None:
    ids = tokens.zarr("tokens.zarr")[IDS.partition("/")[2]]
    assert ids.shape == (90,)
    assert len(ids[3:8]) == 5
    assert tokens.zarr("tokens.zarr").group_keys() == ["test", "train", "valid"]
    assert sorted(tokens.zarr("tokens.zarr")["train"].array_keys()) == [
        "doc_offsets",
        "ids",
        "paragraph_ends",
        "paragraph_hashes",
    ]
    np.testing.assert_array_equal(ids.take(np.array([5, 2, 5])), ids[:][[5, 2, 5]])


@pytest.mark.parametrize(("row", "words"), [([0, -1], None), ([-1, -1], None), ([-1, 0], "behind one that is missing")])
def test_missing_neighbors_are_the_last(store: Store, tokens: Artifact, row: list[int], words: str | None) -> None:
    def made(stage: Any, config: Any, source: Artifact) -> Artifact:
        return make(stage, config, {"source": source.reference}, store, Execution("cpu")).artifact

    datastore = made(BuildDatastore(), DatastoreConfig(), small_model(store, tokens))
    index = made(BuildIndex(), IndexConfig(index="flat"), datastore)
    neighbors = made(PrecomputeNeighbors(), NeighborsConfig(queries=("valid",), k=2), index)
    values = neighbors.zarr("neighbors.zarr")["valid/ids"][:]
    values[3] = row
    ids = rewritten(neighbors, "neighbors.zarr/valid/ids", values).zarr("neighbors.zarr")["valid/ids"]
    if words is None:
        np.testing.assert_array_equal(ids[:], values)
    else:
        with pytest.raises(ArtifactError, match=f"valid/ids: row 3 has neighbours {words}"):
            ids[2:5]


@pytest.mark.parametrize("id", [VOCABULARY, 65535])
def test_ids_beyond_the_vocabulary_are_damage(tokens: Artifact, id: int) -> None:
    values = np.zeros(90, np.uint16)
    values[40] = id
    ids = rewritten(tokens, IDS, values).zarr("tokens.zarr")["train/ids"]
    assert not ids[:40].any()
    with pytest.raises(ArtifactError, match=rf"train/ids: row 40 holds {id}, where ids .* from 0 to 10 .*small-tokens"):
        ids[30:50]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0, 50, 40, 90], "row 2 holds 40, less than the one before"),
        ([0, 50, 10**12], "where offsets from 0 to 90"),
        ([-1, 90], "where offsets from 0 to 90"),
        ([0, 50], "the last row holds 50, not 90"),
    ],
)
def test_offsets_that_fall_or_lead_elsewhere_are_damage(tokens: Artifact, values: list[int], words: str) -> None:
    changed = rewritten(tokens, "tokens.zarr/train/doc_offsets", np.array(values, np.int64))
    with pytest.raises(ArtifactError, match=words):
        changed.zarr("tokens.zarr")["train/doc_offsets"][:]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(80, np.uint16), "is 80, where the manifest says 90"),
        (np.zeros((90, 2), np.uint16), "is 90 x 2, where"),
        (np.zeros(90, np.float32), "holds float32, not uint16 or uint32"),
    ],
)
def test_shapes_and_types_that_do_not_fit_are_damage(tokens: Artifact, values: np.ndarray, words: str) -> None:
    layout = ArrayLayout(IDS, values.shape, values.dtype, 1 << 20)
    (tokens.path / IDS / "zarr.json").unlink()
    (tokens.path / IDS / "c" / "0").unlink()
    files = [*layout.create(tokens.path), layout.write(tokens.path, 0, values)]
    changed = signed(tokens, *files)
    with pytest.raises(ArtifactError, match=words):
        changed.zarr("tokens.zarr")["train/ids"]


def _rows(content: dict[str, Any]) -> None:
    content["shape"] = [10**12]
    content["chunk_grid"]["configuration"]["chunk_shape"] = [10**12]
    content["codecs"][0]["configuration"]["chunk_shape"] = [10**12]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_rows, "where the manifest says"),
        (lambda content: content["codecs"][0]["configuration"].update(chunk_shape=[1]), "cut into pieces"),
        (
            lambda content: content["codecs"][0]["configuration"]["codecs"].append(
                {"name": "gzip", "configuration": {"level": 1}}
            ),
            "packed with gzip",
        ),
        (lambda content: content.pop("codecs"), "holds nothing that memlm wrote"),
        (lambda content: content.update(shape=[-1]), "zarr.json"),
        (lambda content: content.update(data_type="object"), "zarr.json"),
    ],
)
def test_odd_layouts_are_damage(tokens: Artifact, change: Callable[[dict[str, Any]], Any], words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        relaid(tokens, IDS, change).zarr("tokens.zarr")["train/ids"][:]


def test_rows_that_no_file_holds_are_damage_however_many(tokens: Artifact) -> None:
    restate(tokens.path, lambda content: content["metrics"]["splits"]["train"].update(tokens=10**12))
    with pytest.raises(ArtifactError, match="2,000,000,000,000"):
        relaid(tokens, IDS, _rows).zarr("tokens.zarr")["train/ids"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda metrics: metrics.pop("splits"), "metrics.splits: Field required"),
        (lambda metrics: metrics.update(splits=[]), "metrics.splits"),
        (lambda metrics: metrics["splits"]["train"].update(tokens="many"), "metrics.splits.train.tokens"),
        (lambda metrics: metrics.update(vocabulary_size=10**12), "metrics.vocabulary_size"),
        (lambda metrics: metrics.update(eos_id=-1), "metrics.eos_id"),
    ],
)
def test_figures_that_no_stage_measures_are_damage(
    store: Store, tokens: Artifact, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    restate(tokens.path, lambda content: change(content["metrics"]))
    with pytest.raises(ArtifactError, match=words):
        store.get(tokens.reference)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda config: config.update(model=[]), r"config\.model"),
        (lambda config: config["model"].pop("backbone"), "has the id"),
        (lambda config: config["model"].update(vocab_size="3"), r"config\.model\.vocab_size"),
    ],
)
def test_settings_that_no_stage_takes_are_damage(
    store: Store, tokens: Artifact, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    model = small_model(store, tokens)

    def as_trained(content: dict[str, Any]) -> None:
        content |= {"stage": "train", "config": TrainConfig(steps=1).stored()}
        change(content["config"])

    restate(model.path, as_trained)
    with pytest.raises(ArtifactError, match=words):
        store.get(model.reference)
