"""Rows of a change: shards of them, their windows, what is copied, and sizes foretold."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.encoding.stored_rows import RowLayouts
from stages.encoding.window_settings import TokenRange
from stages.examples.cutting import WindowSettings
from stages.lineage.runs import KeptRows, Runs
from stages.lineage.sources import RowSource
from stages.search.keys import StoredKeys
from stages.text.documents import NamedRun
from stages.updating.change import RowTables, rows_to_reencode
from stages.updating.plan import (
    UpdatePlan,
    bytes_of_sources_and_names,
    longer_layouts,
    shards_of_rows,
    stored_tables,
    write_sources_and_names,
)
from stages.updating.rows import ChangedRows
from tests.stages.small_text import text_tokens


def plan(kept: int, added: int, per_shard: int) -> UpdatePlan:
    rows = kept + added
    layouts = RowLayouts(
        ArrayLayout("k", (rows, 2), "float32", per_shard),
        ArrayLayout("v", (rows,), "int32", per_shard),
    )
    ranges = np.array([[5, 5 + kept]] if kept else np.empty((0, 2)), np.int64)
    shards = shards_of_rows(layouts.keys, kept, carries_state=True)
    return UpdatePlan(
        shards, layouts, [], 1, KeptRows(ranges), np.zeros(len(ranges), np.int64), True
    )


@pytest.mark.parametrize(("kept", "added"), [(10, 7), (8, 8), (0, 9), (10, 0), (3, 1)])
@pytest.mark.parametrize("per_shard", [1, 4, 40])
def test_the_added_tokens_follow_each_other_through_the_shards(
    kept: int, added: int, per_shard: int
) -> None:
    made = plan(kept, added, per_shard)
    tokens = [made.added(number) for number in range(len(made.shards))]
    assert [token for one in tokens for token in range(one.start, one.stop)] == list(range(added))
    assert [shard.chain is not None for shard in made.shards] == [
        one.start < one.stop for one in tokens
    ]
    for number in range(len(tokens)):
        assert (
            list(made.added_before(number))
            == [one for one in tokens[:number] if one.start < one.stop][::-1]
        )


def test_a_shard_is_known_by_its_number_and_the_tables_add_nothing() -> None:
    made = plan(3, 6, 4)
    assert [shard.key for shard in made.shards] == ["000000", "000001", "000002"]
    assert made.added(1) == TokenRange("000001", 1, 5)


OFFSETS = np.array([0, 3, 3, 8, 12, 13, 20])


@pytest.mark.parametrize(
    "windows", [WindowSettings(4, 4), WindowSettings(6, 2), WindowSettings(5, 1)]
)
@pytest.mark.parametrize("gone", [[0], [2], [2, 4], [3, 5], []])
def test_rows_that_had_what_goes_in_their_window_are_counted(
    windows: WindowSettings, gone: list[int]
) -> None:
    kept = KeptRows.of_documents(OFFSETS, np.array(gone, np.int64))
    removed = {row for document in gone for row in range(OFFSETS[document], OFFSETS[document + 1])}
    found = rows_to_reencode(Runs.whole(20), kept, windows)
    for (first, last), count in zip(kept.ranges.tolist(), found.tolist(), strict=True):
        for row in range(first, last):
            begins = max(0, -(-(row - windows.context + 1) // windows.stride)) * windows.stride
            assert (row < first + count) == any(
                begins <= token < first for token in removed if first
            ), (first, row)


KEYS = np.arange(40, dtype=np.float32).reshape(20, 2)


class CountedReads(StoredKeys):
    """Keys in shards of six rows, which notes what is read."""

    def __init__(self) -> None:
        super().__init__(KEYS, 6)
        self.shards_read: list[int] = []

    def read(self, shard: int) -> np.ndarray:
        self.shards_read.append(shard)
        return super().read(shard)


@pytest.mark.parametrize("gone", [[], [0], [2], [3, 5], [1, 2, 4]])
@pytest.mark.parametrize("step", [1, 4, 30])
def test_rows_that_stay_are_copied_and_each_old_shard_is_read_once(
    gone: list[int], step: int
) -> None:
    kept = KeptRows.of_documents(OFFSETS, np.array(gone, np.int64))
    stays = np.flatnonzero(kept.contains(np.arange(20)))
    for start in range(0, kept.rows + 2, step):  # two rows are added, which nobody copies
        rows = slice(start, min(start + step, kept.rows + 2))
        keys, values = (
            np.full((rows.stop - start, 2), -1, np.float32),
            np.full(rows.stop - start, -1),
        )
        old = CountedReads()
        work = ChangedRows(None, SimpleNamespace(kept_rows=kept), old, np.arange(20) + 100, None)
        work.copy(rows, keys, values)
        copied = stays[rows]
        np.testing.assert_array_equal(keys[: len(copied)], KEYS[copied])
        np.testing.assert_array_equal(values[: len(copied)], copied + 100)
        assert (keys[len(copied) :] == -1).all()
        assert (values[len(copied) :] == -1).all()
        assert old.shards_read == sorted(set((copied // 6).tolist()))


@pytest.fixture
def tokens(tmp_path: Path) -> Artifact:
    return text_tokens(Store(tmp_path / "store"), tmp_path)


class Draft:
    """Files in a folder, and what is committed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.committed = folder, set()

    def done(self, key: str) -> bool:
        return key in self.committed

    def add(self, name: str) -> Path:
        (self.folder / name).parent.mkdir(exist_ok=True)
        return self.folder / name

    def commit(self, key: str) -> None:
        self.committed.add(key)


def rows_of(tokens: Artifact) -> RowTables:
    """The first twenty tokens, in three documents and four paragraphs."""
    ends, hashes = np.array([5, 9, 12, 20]), np.arange(4, dtype=np.uint64)
    names = [NamedRun(2, "mary.txt"), NamedRun(1, None)]
    return RowTables(
        [RowSource.of(tokens, "valid")],
        Runs.whole(20),
        np.array([0, 9, 12, 20]),
        ends,
        hashes,
        names,
    )


def test_layouts_told_before_are_those_of_the_longer_tables(tokens: Artifact) -> None:
    split = tokens.metrics["splits"]["train"]
    more = {"runs": 1, "documents": split["documents"], "paragraphs": split["paragraphs"]}
    told = {
        layout.name: (layout.shape, layout.dtype, layout.stored_bytes)
        for layout in longer_layouts(rows_of(tokens), more)
    }
    after = stored_tables(rows_of(tokens).followed_by(tokens, "train"))
    assert told == {
        layout.name: (table.shape, table.dtype, layout.stored_bytes) for layout, table in after
    }


@pytest.mark.parametrize("split", [None, "train"])
def test_sources_and_names_take_the_bytes_told_before_and_are_written_once(
    tokens: Artifact, tmp_path: Path, split: str | None
) -> None:
    before = rows_of(tokens)
    after = before if split is None else before.followed_by(tokens, split)
    draft = Draft(tmp_path)
    write_sources_and_names(after, draft)
    told = bytes_of_sources_and_names(before, None if split is None else tokens, split)
    assert {name: (tmp_path / name).stat().st_size for name in told} == told
    (tmp_path / "sources.json").write_text("kept")
    write_sources_and_names(after, draft)
    assert (tmp_path / "sources.json").read_text() == "kept"
