"""Rows of a datastore: their tokens and splits, and their text.

In a datastore of build-datastore, row i is token i of one split, with its text in the tokens
artifact. A datastore of update-datastore has rows of several splits, perhaps only parts of them,
and stores its own text. So it can be read even if the tokens artifacts, or documents in them, are
gone.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.lineage.runs import OwnRows, Runs
from stages.lineage.sources import RowSource, is_updated, sources_of
from stages.text.documents import DocumentNames, NamedRun, names_file, read_runs, runs_between
from stages.text.tokens import TokenSplit, open_split

if TYPE_CHECKING:
    from stages.search.keys import StoredKeys

GROUP = "datastore.zarr"
ROWS = "rows"
"""Replaces the name of a split if rows come from several: for names of documents, and as name of
the text.
"""


def own_rows(datastore: Artifact, tokens: Artifact) -> dict[str, OwnRows]:
    """For each split of `tokens` in a datastore, the rows that are its tokens."""
    rows = DatastoreRows(datastore)
    arrays: Any = tokens.zarr("tokens.zarr")
    rows_of_split = {}
    for split in tokens.metrics["splits"]:
        for number, source in enumerate(rows.sources):
            if source.is_split(tokens, split):
                offsets = np.asarray(arrays[f"{split}/doc_offsets"][:])
                rows_of_split[split] = OwnRows(rows.runs, number, offsets)
    return rows_of_split


@dataclass(frozen=True)
class DatastoreRows:
    """The rows of an opened datastore; arrays are read on demand."""

    datastore: Artifact

    @property
    def rows(self) -> int:
        return int(self.datastore.metrics["rows"])

    @cached_property
    def sources(self) -> list[RowSource]:
        """The splits from which the rows come."""
        return sources_of(self.datastore)

    @cached_property
    def runs(self) -> Runs:
        """Source and token of each row, as runs."""
        if not is_updated(self.datastore):
            return Runs.whole(self.rows)
        group: Any = self.datastore.zarr(GROUP)
        starts, sources, places = np.asarray(group["runs"][:]).T
        return Runs(np.append(starts, self.rows), sources, places)

    @cached_property
    def text(self) -> TokenSplit:
        """The text of the rows: its token i is row i. If only part of a split is stored, the whole
        split.
        """
        if not is_updated(self.datastore):
            return open_split(self.datastore.input("corpus").zarr("tokens.zarr"), self.text_name)
        group: Any = self.datastore.zarr(GROUP)
        return TokenSplit(
            group["values"],
            group["doc_offsets"],
            group["paragraph_ends"],
            group["paragraph_hashes"],
        )

    @property
    def has_split_text(self) -> bool:
        """Whether `text` is that of a whole split, even if only a part has rows."""
        return not is_updated(self.datastore)

    @property
    def text_name(self) -> str:
        """Name of the text, as for a split."""
        return ROWS if is_updated(self.datastore) else str(self.datastore.config["split"])

    @cached_property
    def names(self) -> DocumentNames:
        """Names of its documents."""
        return DocumentNames(self.named_runs)

    @property
    def named_runs(self) -> list[NamedRun]:
        """Names of the documents that have rows, as runs; empty if names were not stored."""
        holder = self.datastore if is_updated(self.datastore) else self.datastore.input("corpus")
        path = holder.path / names_file(self.text_name)
        runs = read_runs(path) if path.is_file() else ()
        return list(runs_between(runs, 0, len(self.doc_offsets) - 1))

    @cached_property
    def doc_offsets(self) -> np.ndarray:
        """Rows where documents start, int64 [D + 1], the number of rows last; the last document may
        be cut there.
        """
        starts = np.asarray(self.text.doc_offsets[:-1])
        return np.append(starts[starts < self.rows], self.rows)

    def paragraphs(self, start: int = 0, stop: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Ends, int64 [P], and hashes, uint64 [P], of paragraphs in rows [start, stop), including
        paragraphs cut there.

        Raises: ArtifactError if the numbers of ends and hashes differ.
        """
        stop = self.rows if stop is None else stop
        ends = np.asarray(self.text.paragraph_ends[:])
        hashes = np.asarray(self.text.paragraph_hashes[:])
        if len(ends) != len(hashes):
            raise self.datastore.damaged(
                f"of {len(ends):,} paragraphs it has {len(hashes):,} hashes"
            )
        # a paragraph counts if any of its tokens is a row: part of it reveals the rest
        begins = np.concatenate([[0], ends[:-1]])
        inside = (begins < stop) & (ends > start)
        return np.minimum(ends[inside], stop), hashes[inside]

    def paragraph_hashes(self, source: int) -> np.ndarray:
        """Hashes of a source's paragraphs, uint64 [P]; of the whole split even if build-datastore
        stored only a part."""
        if not is_updated(self.datastore):
            return np.asarray(self.text.paragraph_hashes[:])
        return self.paragraphs(*self.runs.block(source))[1]


def stored_keys(datastore: Artifact) -> "StoredKeys":
    """Keys [rows, dim], read from the files of their shards."""
    from stages.search.keys import StoredKeys

    return StoredKeys(datastore.zarr("datastore.zarr")["keys"])
