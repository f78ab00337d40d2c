"""Arrays of an artifact for reading, compared with the schema of the stage that wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stages.artifacts.kinds import STAGES
from stages.artifacts.manifest import Manifest
from stages.artifacts.schema import Check, Expected, anything
from stages.errors import content_of

if TYPE_CHECKING:
    import zarr

_PLAIN = frozenset({"bytes", "crc32c"})
"""Codecs that give back as many bytes as they read: none of an artifact's arrays is compressed."""


class Source(Protocol):
    """An artifact, as far as its arrays need it."""

    path: Path
    manifest: Manifest

    def file(self, relative: str | Path) -> Path:
        """Path of a file. Raises: ArtifactError if the manifest does not list it."""

    def damaged(self, problem: str) -> Exception:
        """The error for something that cannot be right."""


class CheckedArray:
    """A Zarr array for reading, whose values are compared with what is expected where they are sliced."""

    def __init__(self, artifact: Source, name: str, array: zarr.Array[Any], check: Check) -> None:
        self._artifact, self._name, self._array, self._check = artifact, name, array, check
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self.chunks, self.shards = array.chunks, array.shards

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: Any) -> np.ndarray:
        """Rows, and columns of them. Raises: ArtifactError if they cannot be read, or a value cannot be right."""
        rows = part[0] if isinstance(part, tuple) else part
        start = rows.indices(len(self))[0] if isinstance(rows, slice) else 0
        with content_of(self._artifact.path / self._name):
            values = np.asarray(self._array[part])
        return self._checked(values, start)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, in any order; raises as slices do."""
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


class CheckedGroup:
    """A Zarr group of an artifact, for reading: its arrays are as their stage writes them."""

    def __init__(self, artifact: Source, name: str, group: zarr.Group) -> None:
        self._artifact, self._name, self._group = artifact, name, group

    def __getitem__(self, below: str) -> Any:
        """An array or a group. Raises: ArtifactError if it is not there, or not as it must be."""
        import zarr

        file = Path(self._name, below, "zarr.json")
        with content_of(self._artifact.file(file)):
            found = self._group[below]
        name = f"{self._name}/{below}"
        if isinstance(found, zarr.Group):
            return CheckedGroup(self._artifact, name, found)
        return self._checked(name, found)

    def array_keys(self) -> list[str]:
        """Names of its arrays."""
        with content_of(self._artifact.path / self._name):
            return sorted(self._group.array_keys())

    def group_keys(self) -> list[str]:
        """Names of the groups in it."""
        with content_of(self._artifact.path / self._name):
            return sorted(self._group.group_keys())

    def _checked(self, name: str, array: zarr.Array[Any]) -> CheckedArray:
        expected = STAGES.load(self._artifact.manifest.stage).schema.arrays(self._artifact, name)
        wrong = _wrong_layout(array) or (expected and _wrong_array(array, expected)) or self._lacking(name, array)
        if wrong:
            raise self._artifact.damaged(f"{self._artifact.path / name} {wrong}")
        return CheckedArray(self._artifact, name, array, expected.check if expected else anything)

    def _lacking(self, name: str, array: zarr.Array[Any]) -> str | None:
        """Files too small for the rows that they are said to hold: these would be made up, however many they are."""
        needed = prod(array.shards or array.chunks) * array.dtype.itemsize
        below = f"{name}/c/"
        sizes = (entry["bytes"] for file, entry in self._artifact.manifest.files.items() if file.startswith(below))
        smallest = min(sizes, default=needed)
        return None if smallest >= needed else f"has a shard of {smallest:,} bytes, where its layout needs {needed:,}"


def _wrong_array(array: zarr.Array[Any], expected: Expected) -> str | None:
    fits = len(array.shape) == len(expected.shape) and all(
        wanted in (None, found) for wanted, found in zip(expected.shape, array.shape, strict=True)
    )
    if not fits:
        wanted = " x ".join("any" if length is None else f"{length}" for length in expected.shape)
        return f"is {' x '.join(map(str, array.shape))}, where the manifest says {wanted}"
    if array.dtype.name not in expected.dtypes:
        return f"holds {array.dtype.name}, not {' or '.join(expected.dtypes)}"
    return None


def _wrong_layout(array: zarr.Array[Any]) -> str | None:
    """Shards that are no whole rows of the array, and codecs that make much of little."""
    shard = array.shards or array.chunks
    if array.chunks != shard or shard[1:] != array.shape[1:] or shard[0] > max(1, *array.shape[:1]):
        return f"is cut into pieces of {array.chunks} in shards of {shard}, not into whole rows of {array.shape}"
    layout: Any = array.metadata.to_dict()
    codecs = [codec for outer in layout["codecs"] for codec in _flat(outer)]
    odd = sorted({name for name in codecs if name not in _PLAIN})
    return f"is packed with {', '.join(odd)}, which memlm does not use" if odd else None


def _flat(codec: Mapping[str, Any]) -> list[str]:
    """The names of a codec, or of those that a sharding codec is made of."""
    if codec["name"] != "sharding_indexed":
        return [str(codec["name"])]
    inner = codec["configuration"]
    return [name for part in ("codecs", "index_codecs") for one in inner[part] for name in _flat(one)]
