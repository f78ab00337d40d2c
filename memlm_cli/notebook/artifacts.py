"""Artifacts in a notebook, with the tables and pages that it shows."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from memlm_cli.progress import ConsoleReporter
from memlm_cli.reproduce import page_of
from stages.artifacts.artifact import Artifact as Stored
from stages.artifacts.durable import write_atomically
from stages.charts.figure import Figure
from stages.errors import UsageError, shortened
from stages.evaluation.figures.token_scores import open_scores
from stages.lineage.corpus import token_text
from stages.reports.fields import counting
from stages.reports.measures import COUNTING
from stages.retrieval.arrays import Datastore, Index
from stages.text.tokens import SPLITS, open_split


class Artifact:
    """An artifact; read-only."""

    def __init__(self, store: Any, stored: Stored) -> None:
        """`store`: the `Store` that it was opened by."""
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
        """The artifacts that it was made from, by role, if they still exist."""
        inputs = {}
        for role, record in self._stored.manifest.inputs.items():
            if (self.store.path / record.reference).is_dir():
                inputs[role] = self.store[record.reference]
        return inputs


class Tokens(Artifact):
    """Text as ids."""

    @property
    def ids(self) -> dict[str, Any]:
        """The ids of each split, `[tokens]`, read as they are sliced."""
        group = self._stored.zarr("tokens.zarr")
        splits = [split for split in SPLITS if split in self.metrics["splits"]]
        return {split: open_split(group, split).ids for split in splits}


class Model(Artifact):
    """A language model."""


class Neighbors(Artifact):
    """Rows of a datastore found for the tokens of splits."""


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
            return open_searcher(
                self._stored.file("index.faiss"), self.config, (keys["rows"], keys["dim"])
            )

    def search(
        self, queries: Any, k: int, exclude_ranges: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        with ConsoleReporter("search", soon=True):
            return super().search(queries, k, exclude_ranges)


def plain(value: Any) -> Any:
    """Plain Python values: artifacts become references, paths texts, and NumPy numbers Python's,
    also in lists.
    """
    if isinstance(value, Artifact):
        return value.reference
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return value.item() if hasattr(value, "item") else value


def text(value: Any, name: str) -> str:
    """`value` if it is a text. Raises: UsageError for anything else."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is a text (str), not {shortened(repr(value))}.")
    return value


def reference(value: Any, name: str = "reference") -> Any:
    """The reference of an artifact, `kind/id`, `kind/name` or a path. Raises: UsageError for
    anything else.
    """
    if isinstance(value, Artifact):
        return value.reference
    if isinstance(value, str | Path):
        return str(value)
    raise UsageError(
        f"{name} is an artifact, kind/id, kind/name or a path, not {shortened(repr(value))}."
    )


Columns = dict[str, np.ndarray]
"""A table: arrays of one length by name, as `pandas.DataFrame` and `polars.DataFrame` take it."""


def columns(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows of one shape as arrays by name; texts as Python's own."""
    arrays = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        plain = all(isinstance(value, bool | int | float) for value in values)
        arrays[name] = np.array(values) if plain else np.array(values, object)
    return arrays


class Page:
    """A web page, complete in itself; a notebook shows it in a frame."""

    def __init__(self, html: str, figures: Mapping[str, Figure] | None = None) -> None:
        self.html = html
        self.figures = dict(figures or {})

    def write(self, path: str | Path) -> None:
        """Write it as a file, whole or not at all."""
        write_atomically(Path(path), self.html)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 640px; border: 1px solid #8884"
        return f'<iframe srcdoc="{escape(self.html)}" style="{style}" sandbox></iframe>'


class Report(Artifact):
    """A report."""

    def table(self) -> Columns:
        """A row for the model alone and for each memory: perplexity, bits a character, …

        `counting` is the perplexity of a trigram of all the text that the row may read.
        """
        rows = []
        for row in self._stored.json("metrics.json")["rows"]:
            rows.append({**row, COUNTING: counting(row)})
        # lists and nested figures are no columns
        names = [
            name
            for name, value in rows[0].items()
            if isinstance(value, str | int | float) or value is None
        ]
        return columns([{name: row.get(name) for name in names} for row in rows])

    def tokens(self) -> Columns:
        """Every scored token, unless it was made with `save_token_scores=false`: `id`, `token`, `logp`,
        `logp_lm`, `gain`, …

        Log-probabilities in nats; `logp_memory_1`, … are those of each reading's memory alone.
        """
        open_scores(self._stored, "final")
        group: Any = self._stored.zarr("scores.zarr")
        arrays = {name: group[name][:] for name in group.array_keys()}
        ids = arrays.pop("target")
        memory = arrays.pop("logp_memory", None)

        text = token_text(self._stored.input("tokens"))
        labels = {int(id): text.label(int(id)) for id in np.unique(ids)}
        tokens = np.array([labels[id] for id in ids.tolist()], object)
        result = {"id": ids, "token": tokens, **arrays}
        result["gain"] = arrays["logp"] - arrays["logp_lm"]
        if memory is not None:
            for number in range(memory.shape[1]):
                result[f"logp_memory_{number + 1}"] = memory[:, number]
        return result

    def page(self) -> Page:
        """The page of `memlm report`; a notebook shows it."""
        with ConsoleReporter("report", soon=True):
            page = page_of([self._stored])
        return Page(page.html, {figure.name: figure for figure in page.figures})

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()
