"""Artifacts in a notebook, and questions to them."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlm_cli.console import ConsoleReporter
from stages.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from memlm_cli.notebook.store import Store
    from stages.artifacts.artifact import Artifact as Stored


class Artifact:
    """An artifact; read-only."""

    def __init__(self, store: "Store", stored: "Stored") -> None:
        self.store = store
        self._stored = stored

    def __repr__(self) -> str:
        return f"<memlm {self.reference}>"

    @property
    def reference(self) -> str:
        """`kind/id`."""
        return self._stored.reference

    @property
    def config(self) -> dict[str, Any]:
        """All settings, resolved."""
        return self._stored.config

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of its stage."""
        return self._stored.metrics

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._stored.path

    @property
    def inputs(self) -> "dict[str, Artifact]":
        """Artifacts that it was made from, by role, as far as they are still there."""
        present = {role: record.reference for role, record in self._stored.manifest.inputs.items()}
        folder = self._stored.store
        return {role: self.store[ref] for role, ref in present.items() if (folder.root / ref).is_dir()}


class Tokens(Artifact):
    """Text as ids."""


class Model(Artifact):
    """A language model."""


class Neighbors(Artifact):
    """Rows of a datastore that were found for the tokens of splits."""


class Datastore(Artifact):
    """Keys and values."""

    @property
    def keys(self) -> Any:
        """Representations of contexts, float16 or float32 [rows, dim], read as they are sliced."""
        return self._stored.zarr("datastore.zarr")["keys"]

    @property
    def values(self) -> Any:
        """The token that follows each, int32 [rows], read as they are sliced."""
        return self._stored.zarr("datastore.zarr")["values"]

    def batches(self, rows: int = 8192) -> "Iterator[tuple[np.ndarray, np.ndarray]]":
        """Keys and values of so many rows at a time, in stored order."""
        if rows < 1:
            raise UsageError(f"batches are of 1 row or more, not {rows}.")
        keys, values = self.keys, self.values
        for start in range(0, len(values), rows):
            yield keys[start : start + rows], values[start : start + rows]


class Index(Artifact):
    """Keys, ready to be searched."""

    def search(self, queries: Any, k: int) -> "tuple[np.ndarray, np.ndarray]":
        """The k nearest rows of its datastore for each query.

        Args:
            queries: [n, dim], or [dim] for one.
        Returns: ids int64 [n, k], best first, -1 where there are fewer; distances float32 [n, k], squared L2, or
            inner products.
        """
        import numpy as np

        dim, dtype = self._searcher.dim, self._stored.find("datastore").metrics["dtype"]
        wanted = np.atleast_2d(np.asarray(queries)).astype(dtype).astype(np.float32)
        if wanted.ndim != 2 or wanted.shape[1] != dim:
            raise UsageError(f"queries are [n, {dim}], not {list(np.shape(queries))}.")
        if k < 1:
            raise UsageError(f"k is 1 or more, not {k}.")
        searcher = self._searcher
        with ConsoleReporter("search", soon=True):
            found: tuple[np.ndarray, np.ndarray] = searcher.search(wanted, k)
        return found

    @cached_property
    def _searcher(self) -> Any:
        with ConsoleReporter("search", soon=True):
            from stages.search.open import open_searcher

            keys = self._stored.find("datastore").metrics
            return open_searcher(self._stored.file("index.faiss"), self.config, (keys["rows"], keys["dim"]))


def plain(value: Any) -> Any:
    """Artifacts by their references, paths as texts, numbers of NumPy as Python's, in lists too."""
    if isinstance(value, Artifact):
        return value.reference
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value
