"""Arrays are compared with their manifest, values with their range; rows from files are those that
Zarr gives.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.reading import CheckedArray
from stages.artifacts.schema import anything
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.training.config import TrainConfig
from tests.builders.rewritten import rewritten, signed
from tests.stages.artifacts.toy import restate
from tests.stages.small_store import VOCABULARY, small_model, small_tokens

SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=2).map(tuple)


def written(
    root: Path, shape: tuple[int, ...], dtype: Any, rows_per_shard: int
) -> tuple[ArrayLayout, Any]:
    """An array of memlm's layout whose values all differ, and the same as Zarr opens it."""
    layout = ArrayLayout("all.zarr/test/array", shape, dtype, rows_per_shard)
    layout.create(root)
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for shard in range(layout.shards):
        layout.write(root, shard, values[layout.rows(shard)])
    group: Any = zarr.open_group(root / "all.zarr", mode="r")
    return layout, group["test/array"]


def rows_of(array: Any) -> CheckedArray:
    """The array as an artifact gives it, without a check of its values."""
    artifact: Any = SimpleNamespace(path=Path("artifact"))
    return CheckedArray(artifact, "all.zarr/test/array", array, anything)


def refuse(*arguments: object) -> None:
    raise AssertionError("Zarr was asked")


@given(
    rows=st.integers(1, 12),
    more=SHAPES,
    dtype=st.sampled_from(["int64", "float32", "float16", "uint16"]),
    data=st.data(),
)
def test_rows_are_those_of_the_array(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    more: tuple[int, ...],
    dtype: str,
    data: st.DataObject,
) -> None:
    root = tmp_path_factory.mktemp("rows")
    _, array = written(root, (rows, *more), dtype, data.draw(st.integers(1, rows)))
    start, stop = data.draw(st.integers(0, rows)), data.draw(st.integers(0, rows + 2))

    found = rows_of(array)[start:stop]

    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array[start:stop])


def test_an_array_as_memlm_writes_it_is_read_without_zarr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, array = written(tmp_path, (10, 3), np.int64, rows_per_shard=4)
    rows = rows_of(array)
    monkeypatch.setattr(zarr.Array, "__getitem__", refuse)

    found = rows[3:9]

    assert found.tolist() == [[3 * row, 3 * row + 1, 3 * row + 2] for row in range(3, 9)]
    found[:] = 0
    assert rows[3:4].tolist() == [[9, 10, 11]]  # rows are a copy


def test_a_shard_that_was_never_written_is_zeros(tmp_path: Path) -> None:
    layout, array = written(tmp_path, (10, 3), np.int64, rows_per_shard=4)
    (tmp_path / layout.shard_file(1)).unlink()

    assert rows_of(array)[3:9].tolist() == [[9, 10, 11], *[[0, 0, 0]] * 4, [24, 25, 26]]


@pytest.mark.parametrize("kept", [17, 100])
def test_a_shard_that_is_cut_short_is_an_error_as_zarr_has_it(tmp_path: Path, kept: int) -> None:
    layout, array = written(tmp_path, (10, 3), np.int64, rows_per_shard=4)
    file = tmp_path / layout.shard_file(0)
    file.write_bytes(file.read_bytes()[:kept])

    with pytest.raises(Exception) as wanted:
        array[0:2]
    with pytest.raises((wanted.type, ArtifactError)):
        rows_of(array)[0:2]


def test_arrays_of_another_layout_are_left_to_zarr(tmp_path: Path) -> None:
    values = np.arange(30).reshape(10, 3)
    compressed = zarr.create_array(tmp_path / "a", data=values, chunks=(4, 3))
    columns = zarr.create_array(
        tmp_path / "b", data=values, chunks=(4, 1), shards=(4, 3), compressors=None
    )
    in_memory = zarr.create_array({}, data=values, chunks=(4, 3))

    for array in (compressed, columns, in_memory):
        np.testing.assert_array_equal(rows_of(array)[3:9], values[3:9])


IDS = "tokens.zarr/train/ids"


@pytest.fixture
def tokens(store: Store) -> Artifact:
    return small_tokens(store)


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
    assert sorted(tokens.zarr("tokens.zarr")["train"].array_keys()) == [
        "doc_offsets",
        "ids",
        "paragraph_ends",
        "paragraph_hashes",
    ]
    np.testing.assert_array_equal(ids.take(np.array([5, 2, 5])), ids[:][[5, 2, 5]])


def test_arrays_of_an_artifact_are_read_without_zarr(
    tokens: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tokens.zarr("tokens.zarr")["train/ids"]
    whole = ids.take(np.arange(90))
    monkeypatch.setattr(zarr.Array, "__getitem__", refuse)

    np.testing.assert_array_equal(ids[70:80], whole[70:80])
    np.testing.assert_array_equal(ids[80:95], whole[80:])


@pytest.fixture
def neighbors(store: Store, tokens: Artifact) -> Artifact:
    """Two of each token of valid."""

    def made(stage: Any, config: Any, source: Artifact) -> Artifact:
        return make(stage, config, {"source": source.reference}, store, Execution("cpu")).artifact

    datastore = made(BuildDatastore(), DatastoreConfig(), small_model(store, tokens))
    index = made(BuildIndex(), IndexConfig(index="flat"), datastore)
    return made(PrecomputeNeighbors(), NeighborsConfig(queries=("valid",), k=2), index)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([0, -1], None),
        ([-1, -1], None),
        ([-1, 0], "has neighbours behind one that is missing"),
        ([0, -2], "holds -2"),
        ([10**6, 0], "holds 1000000"),
    ],
)
def test_missing_neighbors_are_the_last(
    neighbors: Artifact, row: list[int], words: str | None
) -> None:
    values = neighbors.zarr("neighbors.zarr")["valid/ids"][:]
    values[3] = row
    ids = rewritten(neighbors, "neighbors.zarr/valid/ids", values).zarr("neighbors.zarr")[
        "valid/ids"
    ]
    if words is None:
        np.testing.assert_array_equal(ids[:], values)
    else:
        with pytest.raises(ArtifactError, match=f"valid/ids: row 3 {words}"):
            ids[2:5]


def test_distances_are_numbers_or_infinite(neighbors: Artifact) -> None:
    values = neighbors.zarr("neighbors.zarr")["valid/distances"][:]
    values[2], values[4] = (0, np.inf), (np.nan, -np.inf)
    distances = rewritten(neighbors, "neighbors.zarr/valid/distances", values).zarr(
        "neighbors.zarr"
    )["valid/distances"]
    np.testing.assert_array_equal(distances[2:4], values[2:4])
    with pytest.raises(ArtifactError, match="valid/distances: row 4 holds nan"):
        distances[2:6]


@pytest.mark.parametrize("id", [VOCABULARY, 65535])
def test_ids_beyond_the_vocabulary_are_damage(tokens: Artifact, id: int) -> None:
    values = np.zeros(90, np.uint16)
    values[40] = id
    ids = rewritten(tokens, IDS, values).zarr("tokens.zarr")["train/ids"]
    assert not ids[:40].any()
    with pytest.raises(
        ArtifactError,
        match=rf"train/ids: row 40 holds {id}, where ids .* from 0 to 10 .*small-tokens",
    ):
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
def test_offsets_that_fall_or_lead_elsewhere_are_damage(
    tokens: Artifact, values: list[int], words: str
) -> None:
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
def test_shapes_and_types_that_do_not_fit_are_damage(
    tokens: Artifact, values: np.ndarray, words: str
) -> None:
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
        (
            lambda content: content["codecs"][0]["configuration"].update(chunk_shape=[1]),
            "cut into pieces",
        ),
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
def test_odd_layouts_are_damage(
    tokens: Artifact, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    assert tokens.zarr("tokens.zarr")["train/ids"].shape == (
        90,
    )  # what is remembered of it is of other bytes
    with pytest.raises(ArtifactError, match=words):
        relaid(tokens, IDS, change).zarr("tokens.zarr")["train/ids"][:]


def test_rows_that_no_file_holds_are_damage_however_many(tokens: Artifact) -> None:
    restate(
        tokens.path, lambda content: content["metrics"]["splits"]["train"].update(tokens=10**12)
    )
    with pytest.raises(ArtifactError, match="2,000,000,000,000"):
        relaid(tokens, IDS, _rows).zarr("tokens.zarr")["train/ids"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda metrics: metrics.pop("splits"), "metrics.splits: Field required"),
        (lambda metrics: metrics.update(splits=[]), "metrics.splits"),
        (
            lambda metrics: metrics["splits"]["train"].update(tokens="many"),
            "metrics.splits.train.tokens",
        ),
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
