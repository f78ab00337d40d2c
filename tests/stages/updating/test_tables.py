"""Sizes that are told before a change, against what it writes."""

from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.lineage.runs import Runs
from stages.lineage.sources import RowSource
from stages.text.names import NamedRun
from stages.updating.change import RowTables
from stages.updating.tables import bytes_of_sources_and_names, longer_layouts, stored_tables, write_sources_and_names
from tests.stages.small_text import text_tokens


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
    return RowTables([RowSource.of(tokens, "valid")], Runs.whole(20), np.array([0, 9, 12, 20]), ends, hashes, names)


def test_layouts_told_before_are_those_of_the_longer_tables(tokens: Artifact) -> None:
    split = tokens.metrics["splits"]["train"]
    more = {"runs": 1, "documents": split["documents"], "paragraphs": split["paragraphs"]}
    told = {
        layout.name: (layout.shape, layout.dtype, layout.stored_bytes)
        for layout in longer_layouts(rows_of(tokens), more)
    }
    after = stored_tables(rows_of(tokens).followed_by(tokens, "train"))
    assert told == {layout.name: (table.shape, table.dtype, layout.stored_bytes) for layout, table in after}


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
