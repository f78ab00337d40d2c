"""Whose the rows of a changed datastore are, as it lies on disk: tables beside its keys and values, sources, names."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.output import ShardOutput
from stages.lineage.rows import GROUP, ROWS
from stages.lineage.sources import SOURCES, RowSource, dump_sources
from stages.text.names import names_file
from stages.updating.change import RowTables

Table = tuple[ArrayLayout, np.ndarray]

COUNTED = {
    "runs": "runs",
    "doc_offsets": "documents",
    "paragraph_ends": "paragraphs",
    "paragraph_hashes": "paragraphs",
}
"""Tables of a datastore's rows, and what each has a row of."""


def stored_tables(rows: RowTables) -> list[Table]:
    """The tables of some rows, and how they lie on disk."""
    return [(_layout(name, array.shape, array.dtype), array) for name, array in _arrays(rows).items()]


def longer_layouts(rows: RowTables, more: Mapping[str, int]) -> list[ArrayLayout]:
    """How the tables of some rows lie on disk once there are `more` runs, documents and paragraphs."""
    return [
        _layout(name, (len(array) + more[COUNTED[name]], *array.shape[1:]), array.dtype)
        for name, array in _arrays(rows).items()
    ]


def write_tables(tables: Sequence[Table], output: ShardOutput) -> None:
    """All tables, as one shard of the stage."""
    for layout, table in tables:
        for number in range(layout.shards):
            output.write(layout, number, table[layout.rows(number)])


def write_sources_and_names(rows: RowTables, draft: Draft) -> None:
    """Sources, and names of documents, which are files of their own, unless they are there."""
    if not draft.done(SOURCES):
        draft.add(SOURCES).write_text(dump_sources(rows.sources), encoding="utf-8")
        with draft.add(names_file(ROWS)).open("w", encoding="utf-8") as file:
            file.writelines(run.dumps() for run in rows.names)
        draft.commit(SOURCES)


def bytes_of_sources_and_names(rows: RowTables, added: Artifact | None, split: str | None) -> dict[str, int]:
    """Sizes of the files of sources and names, by name, once a split is added behind some rows; None: none is."""
    sources, names = rows.sources, sum(len(run.dumps()) for run in rows.names)
    if added is not None and split is not None:
        sources = [*sources, RowSource.of(added, split)]
        file = added.manifest.files.get(names_file(split))
        names += 0 if file is None else int(file["bytes"])
    return {SOURCES: len(dump_sources(sources)), names_file(ROWS): names}


def _arrays(rows: RowTables) -> dict[str, np.ndarray]:
    return {"runs": rows.run_table, **{name: getattr(rows, name) for name in COUNTED if name != "runs"}}


def _layout(name: str, shape: tuple[int, ...], dtype: Any) -> ArrayLayout:
    row = np.dtype(dtype).itemsize * math.prod(shape[1:]) if shape[0] else 1
    return ArrayLayout(f"{GROUP}/{name}", shape, dtype, rows_per_shard(row))
