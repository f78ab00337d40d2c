"""Plan of a change: its shards, and the tables with the origins of a datastore's rows."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.kinds import ADDED
from stages.artifacts.stage import Shard, ShardPlan
from stages.encoding.stored_rows import RowLayouts
from stages.encoding.window_settings import STATES_KEPT, TokenRange, state_bytes
from stages.lineage.rows import GROUP, ROWS
from stages.lineage.runs import KeptRows
from stages.lineage.sources import SOURCES, RowSource, dump_sources
from stages.models.config import model_of
from stages.text.documents import names_file
from stages.updating.change import Change, RowTables, rows_to_reencode
from stages.updating.config import UpdateConfig

Table = tuple[ArrayLayout, np.ndarray]

COUNTED = {
    "runs": "runs",
    "doc_offsets": "documents",
    "paragraph_ends": "paragraphs",
    "paragraph_hashes": "paragraphs",
}
"""Tables of a datastore's rows, and the unit of one row of each."""


def stored_tables(rows: RowTables) -> list[Table]:
    """The tables of rows, with their layouts on disk."""
    layouts = longer_layouts(rows, {})
    return list(zip(layouts, _arrays(rows).values(), strict=True))


def longer_layouts(rows: RowTables, more: Mapping[str, int]) -> list[ArrayLayout]:
    """Layouts of the tables of rows on disk with `more` runs, documents and paragraphs."""
    layouts = []
    for name, array in _arrays(rows).items():
        length = len(array) + more.get(COUNTED[name], 0)
        width = array.shape[1:]
        # An empty array has shards of any length.
        row_bytes = array.itemsize * math.prod(width) if length else 1
        shape = (length, *width)
        layout = ArrayLayout(f"{GROUP}/{name}", shape, array.dtype, rows_per_shard(row_bytes))
        layouts.append(layout)
    return layouts


def write_sources_and_names(rows: RowTables, draft: Draft) -> None:
    """Write sources, and names of documents, to their own files, unless these exist."""
    if not draft.done(SOURCES):
        draft.add(SOURCES).write_text(dump_sources(rows.sources), encoding="utf-8")
        with draft.add(names_file(ROWS)).open("w", encoding="utf-8") as file:
            file.writelines(run.dumps() for run in rows.names)
        draft.commit(SOURCES)


def bytes_of_sources_and_names(
    rows: RowTables, added: Artifact | None, split: str | None
) -> dict[str, int]:
    """Sizes, in bytes, of the files of sources and names, after a split is added; `added` None:
    none is.
    """
    sources = rows.sources
    name_bytes = sum(len(run.dumps()) for run in rows.names)
    if added is not None and split is not None:
        sources = [*sources, RowSource.of(added, split)]
        file = added.manifest.files.get(names_file(split))
        if file is not None:
            name_bytes += int(file["bytes"])
    return {SOURCES: len(dump_sources(sources)), names_file(ROWS): name_bytes}


def _arrays(rows: RowTables) -> dict[str, np.ndarray]:
    """The tables by name, in the order of COUNTED."""
    return {
        "runs": rows.run_table,
        "doc_offsets": rows.doc_offsets,
        "paragraph_ends": rows.paragraph_ends,
        "paragraph_hashes": rows.paragraph_hashes,
    }


TABLES = "documents"
"""Key of the shard with the origins of rows; each other shard is a range of rows."""


@dataclass(frozen=True)
class UpdatePlan(ShardPlan[Shard]):
    """The changed rows, and their division into shards."""

    layouts: RowLayouts
    tables: list[Table]
    """Tables of the origins of rows, with their layouts on disk."""
    documents: int
    kept_rows: KeptRows
    reread: np.ndarray
    """For each range that stays, rows at its start that are encoded again because their windows had
    forgotten rows; int64 [K]."""
    carries_state: bool

    def added(self, number: int) -> TokenRange:
        """Tokens of the added split in a shard of rows, perhaps none."""
        # The added rows follow those that stay.
        rows = self.layouts.keys.rows(number)
        num_kept = self.kept_rows.rows
        start = max(0, rows.start - num_kept)
        stop = max(0, rows.stop - num_kept)
        return TokenRange(_key(number), start, stop)

    def added_before(self, number: int) -> Iterator[TokenRange]:
        """Tokens of the added split in the shards before shard `number`, in reverse order."""
        for earlier in reversed(range(number)):
            tokens = self.added(earlier)
            # Shards before it have rows that stay, and no added ones.
            if tokens.start == tokens.stop:
                return
            yield tokens


def plan_change(config: UpdateConfig, encoder: Artifact, change: Change) -> UpdatePlan:
    """Plan a change of the rows; `encoder`: the model of their keys."""
    carries = model_of(encoder).carries_state
    layouts = row_layouts(config, encoder, change.after.rows)
    tables = stored_tables(change.after)
    # None by document, and none with a state, which cannot be undone.
    reread = np.zeros(len(change.kept_rows.ranges), np.int64)
    if not carries and config.reset != "document":
        reread = rows_to_reencode(change.before.runs, change.kept_rows, config.windows)
    row_shards = shards_of_rows(layouts.keys, change.kept_rows.rows, carries_state=carries)
    table_layouts = [layout for layout, _ in tables]
    one_state_bytes = state_bytes(encoder, config.windows, change.after.rows)
    return UpdatePlan(
        [Shard(TABLES), *row_shards],
        layouts,
        tables,
        change.after.documents,
        change.kept_rows,
        reread,
        carries,
        arrays=[*layouts, *table_layouts],
        scratch_bytes=STATES_KEPT * one_state_bytes,
    )


def shards_of_rows(keys: ArrayLayout, num_kept: int, *, carries_state: bool) -> list[Shard]:
    """Shards of keys and values. The first `num_kept` rows stay; shards after them may carry a
    state.
    """
    shards = []
    for number in range(keys.shards):
        # Rows that stay are copied in any order; only a carried state makes shards depend on each
        # other.
        follows = carries_state and keys.rows(number).stop > num_kept
        shards.append(Shard(_key(number), chain=ADDED if follows else None))
    return shards


def row_layouts(config: UpdateConfig, encoder: Artifact, rows: int) -> RowLayouts:
    """Layouts of the arrays of `rows` rows, by resolved settings."""
    assert config.dtype is not None
    return RowLayouts.of(encoder, rows, config.dtype, config.stride or 1)


def _key(number: int) -> str:
    """Key of a shard of rows."""
    return f"{number:06d}"
