"""Rows written shard by shard are what any Zarr reader sees, and each shard is a file of its own."""

from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts.arrays import TARGET_SHARD_BYTES, ArrayLayout, rows_per_shard
from stages.errors import ArtifactError


def made(root: Path, name: str, shape: tuple[int, ...], dtype: str, per_shard: int) -> ArrayLayout:
    layout = ArrayLayout(name, shape, dtype, per_shard)
    layout.create(root)
    return layout


@settings(max_examples=25, deadline=None)
@given(
    length=st.integers(0, 40),
    per_shard=st.integers(1, 50),
    width=st.sampled_from([None, 1, 3]),
    dtype=st.sampled_from(["float16", "float32", "int32", "uint16", "int64"]),
    zeros=st.booleans(),
)
def test_every_row_is_read_back(tmp_path_factory, length, per_shard, width, dtype, zeros) -> None:  # type: ignore[no-untyped-def]
    root: Path = tmp_path_factory.mktemp("rows")
    shape = (length,) if width is None else (length, width)
    content = (np.random.default_rng(0).random(shape) * 100 * (not zeros)).astype(dtype)
    array = made(root, "a.zarr/part/rows", shape, dtype, per_shard)
    files = [array.write(root, i, content[array.rows(i)]) for i in reversed(range(array.shards))]
    assert all((root / file).is_file() for file in files)
    assert len(set(files)) == len(list((root / "a.zarr/part/rows").rglob("[0-9]*"))) - len(
        [p for p in (root / "a.zarr/part/rows").rglob("[0-9]*") if p.is_dir()]
    )
    found = zarr.open_group(root / "a.zarr", mode="r")["part/rows"]
    assert found.dtype == np.dtype(dtype)
    assert found.metadata.codecs[0].to_dict()["name"] == "sharding_indexed"
    np.testing.assert_array_equal(found[...], content)


def test_a_shard_that_is_linked_elsewhere_is_not_written_through(tmp_path: Path) -> None:
    array = made(tmp_path, "a.zarr/x", (2,), "int32", 2)
    file = tmp_path / array.write(tmp_path, 0, np.array([7, 8], "int32"))
    (tmp_path / "link").hardlink_to(file)
    before = file.read_bytes()
    array.write(tmp_path, 0, np.array([1, 2], "int32"))
    assert (tmp_path / "link").read_bytes() == before != file.read_bytes()


def test_reopening_keeps_shards_and_mends_torn_metadata(tmp_path: Path) -> None:
    array = made(tmp_path, "a.zarr/x", (5,), "int32", 2)
    array.write(tmp_path, 0, np.array([7, 8], "int32"))
    metadata = (tmp_path / "a.zarr/x/zarr.json").read_bytes()
    (tmp_path / "a.zarr/x/zarr.json").write_bytes(metadata[:20])
    array.create(tmp_path)
    assert (tmp_path / "a.zarr/x/zarr.json").read_bytes() == metadata
    np.testing.assert_array_equal(
        zarr.open_array(tmp_path / "a.zarr/x", mode="r")[:], [7, 8, 0, 0, 0]
    )


def test_shards_of_another_shape_are_not_gone_on_from(tmp_path: Path) -> None:
    made(tmp_path, "a.zarr/x", (5,), "int32", 3).write(tmp_path, 0, np.array([7, 8, 9], "int32"))
    with pytest.raises(ArtifactError):
        made(tmp_path, "a.zarr/x", (5,), "int32", 2)


@pytest.mark.parametrize(
    "block", [np.zeros(1, "int32"), np.zeros(2, "int64"), np.zeros((2, 1), "int32")]
)
def test_only_whole_shards_are_written(tmp_path: Path, block: np.ndarray) -> None:
    array = made(tmp_path, "x", (5,), "int32", 2)
    with pytest.raises(ValueError, match="shard 0"):
        array.write(tmp_path, 0, block)


def test_there_is_no_shard_beyond_the_last(tmp_path: Path) -> None:
    array = made(tmp_path, "x", (0,), "int32", 2)
    with pytest.raises(ValueError, match="no shard 0"):
        array.write(tmp_path, 0, np.empty(0, "int32"))


def test_rows_per_shard_fill_the_target() -> None:
    assert rows_per_shard(512) == TARGET_SHARD_BYTES // 512
    assert rows_per_shard(512, multiple_of=1000) % 1000 == 0
    assert rows_per_shard(10**9) == 1
