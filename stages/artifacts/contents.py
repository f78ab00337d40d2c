"""Shapes, types and ranges of the arrays of each kind of artifact, which a right hash does not promise.

Shapes are compared when an array is opened; values where they are read, a slice at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stages.artifacts.kinds import PREVIOUS
from stages.errors import content_of

if TYPE_CHECKING:
    import zarr

    from stages.artifacts.artifact import Artifact

Check = Callable[[np.ndarray, int, int], "str | None"]
"""Describes what is wrong with rows start … of an array of so many, for (values, start, rows); None: nothing. Can
be pickled."""
_PLAIN = frozenset({"bytes", "crc32c"})
"""Codecs that give back as many bytes as they read: none of an artifact's arrays is compressed."""


class Expected(NamedTuple):
    """Expected form of an array: None in a shape is any length."""

    shape: tuple[int | None, ...]
    dtypes: tuple[str, ...]
    check: Check


def between(low: int, stop: int, what: str) -> Check:
    """Integers low <= value < stop."""
    return partial(_outside, low, stop, what)


def _outside(low: int, stop: int, what: str, values: np.ndarray, start: int, rows: int) -> str | None:
    if not values.size or (values.min() >= low and values.max() < stop):
        return None
    place = int(np.flatnonzero((values.ravel() < low) | (values.ravel() >= stop))[0])
    row = start + place * len(values) // values.size
    return f"row {row} holds {values.ravel()[place]}, where {what} from {low} to {stop - 1} are"


def offsets(last: int | None) -> Check:
    """Integers that never fall, from 0 on, or from wherever they begin; the last of all is known."""
    return partial(_no_offsets, last)


def _no_offsets(last: int | None, values: np.ndarray, start: int, rows: int) -> str | None:
    falls = np.flatnonzero(values[1:] < values[:-1])
    if len(falls):
        return f"row {start + 1 + int(falls[0])} holds {values[1 + falls[0]]}, less than the one before"
    if len(values) and (values[0] < 0 or (last is not None and values[-1] > last)):
        return f"rows from {start} on hold {values[0]} to {values[-1]}, where offsets from 0 to {last} are"
    if last is not None and len(values) and start + len(values) == rows and values[-1] != last:
        return f"the last row holds {values[-1]}, not {last}"
    return None


def permutation(values: np.ndarray, start: int, rows: int) -> str | None:
    """Each of 0 … rows - 1 once."""
    wrong = between(0, rows, "numbers")(values, start, rows)
    if wrong is None and len(np.unique(values)) != len(values):
        return "a number stands there twice"
    return wrong


def _no_neighbors(rows_found: int, values: np.ndarray, start: int, rows: int) -> str | None:
    """Rows of a datastore of so many; -1 where one is missing, behind all that are there."""
    wrong = between(-1, rows_found, "rows of the datastore, and -1,")(values, start, rows)
    after_missing = (values[:, :-1] < 0) & (values[:, 1:] >= 0)
    if wrong is None and after_missing.any():
        return f"row {start + int(np.flatnonzero(after_missing.any(-1))[0])} has neighbours behind one that is missing"
    return wrong


def finite(values: np.ndarray, start: int, rows: int) -> str | None:
    """Neither nan nor infinite."""
    return _first(np.isfinite(values), values, start)


def numbers(values: np.ndarray, start: int, rows: int) -> str | None:
    """Not nan."""
    return _first(~np.isnan(values), values, start)


def anything(values: np.ndarray, start: int, rows: int) -> str | None:
    return None


def _first(right: np.ndarray, values: np.ndarray, start: int) -> str | None:
    if right.all():
        return None
    place = int(np.flatnonzero(~right.ravel())[0])
    return f"row {start + place * len(values) // values.size} holds {values.ravel()[place]}"


# By kind: what is expected of an array, by its name in the group


def _of_tokens(artifact: Artifact, name: str) -> Expected | None:
    split, _, array = name.partition("/")
    metrics = artifact.metrics
    recorded = metrics["splits"].get(split)
    if recorded is None:
        return None
    return {
        "ids": Expected(
            (recorded["tokens"],), ("uint16", "uint32"), between(0, metrics["vocabulary_size"], "ids of the vocabulary")
        ),
        "doc_offsets": Expected((None,), ("int64",), offsets(recorded["tokens"])),
        "paragraph_ends": Expected((recorded.get("paragraphs"),), ("int64",), offsets(recorded["tokens"])),
        "paragraph_hashes": Expected((recorded.get("paragraphs"),), ("uint64",), anything),
    }.get(array)


def _of_datastore(artifact: Artifact, name: str) -> Expected | None:
    metrics = artifact.metrics
    changed = PREVIOUS in artifact.manifest.inputs
    tokens = artifact.input("encoder").input("tokens") if changed else artifact.input("corpus")
    rows, types = metrics["rows"], tokens.metrics["vocabulary_size"]
    whose = {
        "doc_offsets": Expected((metrics.get("documents", 0) + 1,), ("int64",), offsets(rows)),
        "paragraph_ends": Expected((None,), ("int64",), between(1, rows + 1, "ends of paragraphs")),
        "paragraph_hashes": Expected((None,), ("uint64",), anything),
        "runs": Expected((None, 3), ("int64",), between(0, 2**53, "rows, sources and places")),
    }
    return (whose if changed else {}).get(name) or {
        "keys": Expected((rows, metrics["dim"]), (metrics["dtype"],), finite),
        "values": Expected((rows,), ("int32",), between(0, types, "ids of the vocabulary")),
    }.get(name)


def _of_neighbors(artifact: Artifact, name: str) -> Expected | None:
    split, _, array = name.partition("/")
    recorded = artifact.input("queries").metrics["splits"].get(split)
    if recorded is None:
        return None
    shape = recorded["tokens"], artifact.config["k"]
    rows = artifact.find("datastore").metrics["rows"]
    return {
        "ids": Expected(shape, ("int64",), partial(_no_neighbors, rows)),
        "distances": Expected(shape, ("float32",), numbers),
    }.get(array)


def _of_batches(artifact: Artifact, name: str) -> Expected | None:
    segments, length = artifact.metrics["segments"], artifact.config["segment_length"]
    return {
        "order": Expected((segments,), ("int64",), permutation),
        "segment_offsets": Expected((segments + 1,), ("int64",), offsets(segments * length)),
    }.get(name)


def _of_scores(artifact: Artifact, name: str) -> Expected | None:
    """Arrays of scores; values are compared with infinity and nan where they are averaged."""
    tokens = artifact.metrics.get("tokens")
    if name == "target":
        types = artifact.input("tokens").metrics["vocabulary_size"]
        return Expected((tokens,), ("int32",), between(0, types, "ids of the vocabulary"))
    return Expected((tokens, None)[: 2 if name == "logp_memory" else 1], ("float32",), anything)


_EXPECTED: Mapping[str, Callable[[Artifact, str], Expected | None]] = {
    "tokens.zarr": _of_tokens,
    "datastore.zarr": _of_datastore,
    "neighbors.zarr": _of_neighbors,
    "batches.zarr": _of_batches,
    "scores.zarr": _of_scores,
}


class CheckedArray:
    """A Zarr array for reading, whose values are compared with what is expected where they are sliced."""

    def __init__(self, artifact: Artifact, name: str, array: zarr.Array[Any], check: Check) -> None:
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
    """A Zarr group of an artifact, for reading: what it gives out is as its kind has it."""

    def __init__(self, artifact: Artifact, name: str, group: zarr.Group) -> None:
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
        outermost, _, below = name.partition("/")
        known = _EXPECTED.get(outermost)
        expected = None if known is None else known(self._artifact, below)
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
