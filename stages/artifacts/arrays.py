"""Zarr arrays of rows, written one whole shard at a time and readable by any Zarr library."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice, product
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.artifacts.durable import write_atomically
from stages.errors import ArtifactError

if TYPE_CHECKING:
    import numpy as np

SHARD_INDEX_BYTES = 20
"""Bytes of a shard's index: offset and length of its single chunk, and a checksum."""
TARGET_SHARD_BYTES = 16 * 2**20
"""Bytes of one shard: enough to be written and read at the disk's speed, and few enough to be held
in memory.
"""


def rows_per_shard(row_bytes: int, multiple_of: int = 1) -> int:
    """Number of rows of a given size in a shard of about 16 MB, rounded down to a multiple."""
    return max(1, TARGET_SHARD_BYTES // row_bytes // multiple_of) * multiple_of


class ArrayLayout:
    """Layout of an array [rows, ...] on disk: uncompressed Zarr v3; a shard is a file of
    `rows_per_shard` whole rows.

    The last shard may have fewer rows. Zarr reads a missing shard as zeros. So only the draft's
    progress log, and never the array, shows which shards are complete. One process makes the array;
    then several may write its shards.
    """

    def __init__(self, name: str, shape: Sequence[int], dtype: Any, rows_per_shard: int) -> None:
        """`name`: path below the draft's folder, such as `datastore.zarr/keys`."""
        import numpy as np

        self.name = name
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.rows_per_shard = min(rows_per_shard, max(1, shape[0]))
        self.shards = ceil(self.shape[0] / self.rows_per_shard)
        """Number of shards of the array."""
        self.nbytes = prod(self.shape) * self.dtype.itemsize
        """Bytes of all values."""
        self.row_bytes = prod(self.shape[1:]) * self.dtype.itemsize
        """Bytes of a row."""
        self.shard_bytes = self.rows_per_shard * self.row_bytes + SHARD_INDEX_BYTES
        """Bytes of a shard's file: its rows, and the shard's index after them."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of all its files; the last shard is padded to the size of the others."""
        return self.shards * self.shard_bytes + len(self._metadata)

    @property
    def _metadata(self) -> bytes:
        return _array_metadata(self.shape, (self.rows_per_shard, *self.shape[1:]), self.dtype)

    def rows(self, shard: int) -> slice:
        """The rows of a shard."""
        start = shard * self.rows_per_shard
        return slice(start, min(start + self.rows_per_shard, self.shape[0]))

    def shard_file(self, shard: int) -> Path:
        """File of a shard, relative to the draft's folder."""
        return Path(self.name, "c", str(shard), *["0"] * (len(self.shape) - 1))

    def describes(self, root: Path) -> bool:
        """Whether the array below the root has exactly this layout."""
        return _holds(root / self.name / "zarr.json", self._metadata)

    def create(self, root: Path) -> list[Path]:
        """Write the `zarr.json` of the array and of each group above it; the same layout gives the
        same bytes.

        Returns: these files, relative to the root. Raises: ArtifactError if an array of another
        layout is there.
        """
        *groups, _ = Path(self.name).parts
        written = {
            Path(*groups[: depth + 1], "zarr.json"): _group_metadata()
            for depth in range(len(groups))
        }
        written[Path(self.name, "zarr.json")] = self._metadata
        # Checked before a byte is written: with other metadata, old shards would be misread.
        self._require_same_layout(root, written[Path(self.name, "zarr.json")])
        for relative, content in written.items():
            if not _holds(root / relative, content):  # arrays of one group share its metadata file
                write_atomically(root / relative, content)
        return list(written)

    def write(self, root: Path, shard: int, block: np.ndarray) -> Path:
        """Write one whole shard of an existing array; returns its file, relative to the root.

        Raises: ValueError if there is no such shard, or `block` is not exactly its rows in the
        array's dtype.
        """
        if not 0 <= shard < self.shards:
            raise ValueError(f"{self.name} has {self.shards} shards, no shard {shard}")
        rows = self.rows(shard)
        expected = (rows.stop - rows.start, *self.shape[1:])
        if block.shape != expected or block.dtype != self.dtype:
            raise ValueError(
                f"{self.name}: shard {shard} is {expected} {self.dtype}, not {block.shape} {block.dtype}"
            )
        file = self.shard_file(shard)
        (root / file).unlink(missing_ok=True)  # Zarr would merge the block with an existing file
        import zarr

        # Shards of zeros are written, too, so that a missing file is always damage.
        with zarr.config.set({"array.write_empty_chunks": True}):
            array: zarr.Array[Any] = zarr.open_array(root / self.name, mode="r+")
        array[rows] = block
        return file

    def _require_same_layout(self, root: Path, metadata: bytes) -> None:
        """Raises: ArtifactError for shards of another shape from another version of memlm, which
        would be misread.
        """
        try:
            stored = json.loads((root / self.name / "zarr.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return
        expected = json.loads(metadata)
        if any(stored.get(part) != expected[part] for part in ("shape", "data_type", "chunk_grid")):
            raise ArtifactError(
                f"{root} was begun by a memlm that cut {self.name} into other shards; remove it with "
                "memlm artifacts gc --interrupted, and the same command begins anew."
            )


def _holds(file: Path, content: bytes) -> bool:
    """Whether a file exists and has exactly this content."""
    try:
        return file.read_bytes() == content
    except OSError:
        return False


@cache
def _group_metadata() -> bytes:
    import zarr

    store: dict[str, Any] = {}
    zarr.create_group(store, zarr_format=3)
    return bytes(store["zarr.json"].to_bytes())


@lru_cache(maxsize=1024)
def _array_metadata(shape: tuple[int, ...], shard: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    import zarr

    # Zarr itself writes the metadata, so that every Zarr library can read it.
    store: dict[str, Any] = {}
    settings: Any = {"compressors": None, "fill_value": 0, "zarr_format": 3}
    zarr.create_array(store, shape=shape, chunks=shard, shards=shard, dtype=dtype, **settings)
    return bytes(store["zarr.json"].to_bytes())


def missing_shards(folder: Path, files: Collection[str]) -> Iterator[str]:
    """Names of shards that arrays need and a table of files lacks; Zarr would read them as zeros.

    Raises: ArtifactError for an array whose metadata describes no layout of shards.
    """
    for metadata in files:
        if metadata.rpartition("/")[2] == "zarr.json":
            yield from _shard_files(folder, Path(metadata), len(files)) - set(files)


def _shard_files(folder: Path, metadata: Path, max_files: int) -> set[str]:
    """Files of an array's shards, none for a group. At most `max_files` + 1 are listed, since then
    some must be missing.
    """
    try:
        content = json.loads((folder / metadata).read_bytes())
        if content["node_type"] == "group":
            return set()
        shard = content["chunk_grid"]["configuration"]["chunk_shape"]
        counts = []
        for rows, shard_rows in zip(content["shape"], shard, strict=True):
            counts.append(min(ceil(rows / shard_rows), max_files + 1))
        if not all(counts):
            return set()

        below = (metadata.parent / "c").as_posix()
        files = set()
        for places in islice(product(*map(range, counts)), max_files + 1):
            files.add("/".join([below, *map(str, places)]))
        return files
    except (ValueError, KeyError, TypeError, RecursionError, ArithmeticError) as error:
        raise ArtifactError(
            f"{folder / metadata} describes no array: {type(error).__name__}: {error}"
        ) from None
