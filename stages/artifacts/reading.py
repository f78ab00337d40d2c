"""Reading the arrays of an artifact, checked against the schema of their stage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from zarr.storage import LocalStore

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.kinds import STAGES
from stages.artifacts.manifest import Manifest
from stages.artifacts.schema import Check, Expected, anything
from stages.errors import content_of

_PLAIN = frozenset({"bytes", "crc32c"})
"""Codecs that do not compress; the arrays of artifacts have no others."""


class Source(Protocol):
    """The part of an artifact that its arrays need."""

    path: Path
    manifest: Manifest

    def file(self, relative: str | Path) -> Path:
        """Path of a file. Raises: ArtifactError if the manifest does not list it."""

    def damaged(self, problem: str) -> Exception:
        """The error for a damaged artifact."""


class CheckedArray:
    """A read-only Zarr array whose values are checked when they are sliced.

    If it has the layout of `ArrayLayout`, its rows are read directly from the files of its shards.
    That takes a quarter of Zarr's time. All other arrays and slices, and missing or incomplete
    shards, are read by Zarr.
    """

    def __init__(self, artifact: Source, name: str, array: zarr.Array[Any], check: Check) -> None:
        self._artifact = artifact
        self._name = name
        self._array = array
        self._check = check
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self.chunks = array.chunks
        self.shards = array.shards

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self._name}: {self.dtype} {list(self.shape)}, read as it is sliced>"

    def __getitem__(self, part: Any) -> np.ndarray:
        """Rows, or some columns of rows. Raises: ArtifactError if they cannot be read, or a value
        is invalid.
        """
        rows = part[0] if isinstance(part, tuple) else part
        start, stop, step = rows.indices(len(self)) if isinstance(rows, slice) else (0, 0, 0)
        with content_of(self._artifact.path / self._name):
            values = (
                self._from_files(start, max(start, stop)) if part is rows and step == 1 else None
            )
            if values is None:
                values = np.asarray(self._array[part])
        return self._checked(values, start)

    def _from_files(self, start: int, stop: int) -> np.ndarray | None:
        """Copies of rows, read directly from the shards' files; None if that is not possible."""
        if self._layout is None:
            return None
        root, layout = self._layout
        rows = np.empty((stop - start, *layout.shape[1:]), layout.dtype)
        while start < stop:
            shard = start // layout.rows_per_shard
            first = shard * layout.rows_per_shard
            end = min(stop, first + layout.rows_per_shard)
            part = rows[len(rows) - (stop - start) :][: end - start]
            if not _read(
                root / layout.shard_file(shard),
                layout.shard_bytes,
                (start - first) * layout.row_bytes,
                part,
            ):
                return None
            start = end
        return rows

    @cached_property
    def _layout(self) -> tuple[Path, ArrayLayout] | None:
        """Root folder and layout of the array, if memlm wrote it."""
        array = self._array
        rows = (array.shards or array.chunks)[0] if array.shape else 0
        if not isinstance(array.store, LocalStore) or not rows:
            return None
        layout = ArrayLayout(array.path, array.shape, array.dtype, rows)
        return (array.store.root, layout) if layout.describes(array.store.root) else None

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Rows at these indices, in any order. Raises: ArtifactError like a slice."""
        with content_of(self._artifact.path / self._name):
            values = np.asarray(self._array.vindex[rows])
        return self._checked(values, 0)

    def _checked(self, values: np.ndarray, start: int) -> np.ndarray:
        wrong = self._check(values, start, len(self))
        if wrong is not None:
            raise self._artifact.damaged(f"{self._artifact.path / self._name}: {wrong}")
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


def _read(file: Path, file_bytes: int, at: int, rows: np.ndarray) -> bool:
    """Fill rows with bytes of a file; returns whether the file exists, with the right length."""
    content = rows.reshape(-1).view(np.uint8).data
    try:
        with file.open("rb", buffering=0) as opened:
            if os.fstat(opened.fileno()).st_size != file_bytes:
                return False
            opened.seek(at)
            done = 0
            while done < len(content) and (count := opened.readinto(content[done:])):
                done += count
    except FileNotFoundError:
        return False
    return done == len(content)


def opened(root: Path, below: str, metadata: Path) -> Any:
    """Open a group for reading, or an array or group below it; `metadata`: path of its `zarr.json`."""
    return _as_described(root, below, metadata.read_bytes() if metadata.is_file() else b"")


@lru_cache(maxsize=1024)
def _as_described(root: Path, below: str, metadata: bytes) -> Any:
    # A small evaluation opens arrays about sixty times, and Zarr takes two milliseconds each time.
    # Metadata is part of the key, so a changed array is opened again.
    group = zarr.open_group(root, mode="r")
    return group[below] if below else group


class CheckedGroup:
    """A read-only Zarr group of an artifact; it checks arrays against the schema of their stage."""

    def __init__(self, artifact: Source, name: str, group: zarr.Group) -> None:
        self._artifact = artifact
        self._name = name
        self._group = group
        self._found: dict[str, CheckedArray | CheckedGroup] = {}

    def __getitem__(self, below: str) -> Any:
        """An array or a group; each is opened once. Raises: ArtifactError if it is missing or
        wrong.
        """
        if below not in self._found:
            self._found[below] = self._open(below)
        return self._found[below]

    def _open(self, below: str) -> CheckedArray | CheckedGroup:
        name = f"{self._name}/{below}"
        file = self._artifact.file(Path(self._name, below, "zarr.json"))
        with content_of(file):
            element = opened(self._artifact.path / self._name, below, file)
        if isinstance(element, zarr.Group):
            return CheckedGroup(self._artifact, name, element)
        return self._checked(name, element)

    def array_keys(self) -> list[str]:
        """Names of its arrays."""
        with content_of(self._artifact.path / self._name):
            return sorted(self._group.array_keys())

    def _checked(self, name: str, array: zarr.Array[Any]) -> CheckedArray:
        expected = STAGES.load(self._artifact.manifest.stage).schema.arrays(self._artifact, name)
        wrong = (
            _wrong_layout(array)
            or (expected and _wrong_array(array, expected))
            or self._lacking(name, array)
        )
        if wrong:
            raise self._artifact.damaged(f"{self._artifact.path / name} {wrong}")
        return CheckedArray(self._artifact, name, array, expected.check if expected else anything)

    def _lacking(self, name: str, array: zarr.Array[Any]) -> str | None:
        """Message about a shard that is too small for its rows, since Zarr would fill in the
        missing ones.
        """
        needed = prod(array.shards or array.chunks) * array.dtype.itemsize
        below = f"{name}/c/"
        sizes = (
            entry["bytes"]
            for file, entry in self._artifact.manifest.files.items()
            if file.startswith(below)
        )
        smallest = min(sizes, default=needed)
        return (
            None
            if smallest >= needed
            else f"has a shard of {smallest:,} bytes, where its layout needs {needed:,}"
        )


def _wrong_array(array: zarr.Array[Any], expected: Expected) -> str | None:
    shape = array.shape
    fits = len(shape) == len(expected.shape)
    for length, expected_length in zip(shape, expected.shape, strict=False):
        fits = fits and expected_length in (None, length)
    if not fits:
        lengths = ["any" if length is None else str(length) for length in expected.shape]
        return f"is {' x '.join(map(str, shape))}, where the manifest says {' x '.join(lengths)}"
    if array.dtype.name not in expected.dtypes:
        return f"holds {array.dtype.name}, not {' or '.join(expected.dtypes)}"
    return None


def _wrong_layout(array: zarr.Array[Any]) -> str | None:
    """Message about shards that are not whole rows, or codecs that could turn a small file into a
    huge array.
    """
    shape = array.shape
    shard = array.shards or array.chunks
    has_whole_rows = array.chunks == shard and shard[1:] == shape[1:]
    if not has_whole_rows or shard[0] > max(1, *shape[:1]):
        return f"is cut into pieces of {array.chunks} in shards of {shard}, not into whole rows of {shape}"

    layout: Any = array.metadata.to_dict()
    names: set[str] = set()
    for codec in layout["codecs"]:
        names.update(_flat(codec))
    odd = sorted(names.difference(_PLAIN))
    return f"is packed with {', '.join(odd)}, which memlm does not use" if odd else None


def _flat(codec: Mapping[str, Any]) -> list[str]:
    """Name of a codec, or the names of the codecs inside a sharding codec."""
    if codec["name"] != "sharding_indexed":
        return [str(codec["name"])]
    names = []
    for part in ("codecs", "index_codecs"):
        for inner in codec["configuration"][part]:
            names += _flat(inner)
    return names
