"""Artifacts in a notebook, and questions to them."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlm_cli.console import ConsoleReporter
from stages.errors import UsageError, shortened
from stages.retrieval.arrays import Datastore, Index

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


class StoredDatastore(Artifact, Datastore):
    """Keys and values of an artifact, read as they are sliced."""

    @property
    def keys(self) -> Any:
        return self._stored.zarr("datastore.zarr")["keys"]

    @property
    def values(self) -> Any:
        return self._stored.zarr("datastore.zarr")["values"]


class StoredIndex(Artifact, Index):
    """The index of an artifact."""

    @cached_property
    def datastore(self) -> Datastore:
        return StoredDatastore(self.store, self._stored.find("datastore"))

    @cached_property
    def searcher(self) -> Any:
        with ConsoleReporter("search", soon=True):
            from stages.search.open import open_searcher

            keys = self._stored.find("datastore").metrics
            return open_searcher(self._stored.file("index.faiss"), self.config, (keys["rows"], keys["dim"]))

    def search(self, queries: Any, k: int, exclude_ranges: Any = None) -> "tuple[np.ndarray, np.ndarray]":
        with ConsoleReporter("search", soon=True):
            return super().search(queries, k, exclude_ranges)


def plain(value: Any) -> Any:
    """Artifacts by their references, paths as texts, numbers of NumPy as Python's, in lists too."""
    if isinstance(value, Artifact):
        return value.reference
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def text(value: Any, name: str) -> str:
    """A text that was given. Raises: UsageError for anything else."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is a text (str), not {shortened(repr(value))}.")
    return value


def reference(value: Any, name: str = "reference") -> Any:
    """The reference of an artifact, `kind/id`, `kind/name` or a path. Raises: UsageError for anything else."""
    if not isinstance(value, Artifact | str | Path):
        raise UsageError(f"{name} is an artifact, kind/id, kind/name or a path, not {shortened(repr(value))}.")
    return value.reference if isinstance(value, Artifact) else str(value)
