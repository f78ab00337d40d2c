"""What a shard writes needs a folder alone, and is nobody's until it is committed."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.draft import Draft
from stages.artifacts.output import ShardOutput


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    return Draft(tmp_path / "draft", {"id": "work"})


def test_a_block_is_written_when_it_is_asked_what_was_written(draft: Draft) -> None:
    layout = ArrayLayout("a.zarr/x", (5,), "int32", 2)
    draft.create(layout)
    metadata = sorted(draft.path.rglob("zarr.json"))
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in metadata]
    output = ShardOutput(draft.path, {"rows": 2})
    output.write(layout, 1, np.array([7, 8], "int32"))
    output.add("scratch/note").write_text("here")
    output.discard("scratch/older")
    assert not (draft.path / layout.shard_file(1)).exists()

    written = output.written("one")
    assert written.key == "one"
    assert written.record == {"rows": 2}
    assert written.discarded == ["scratch/older"]
    assert set(written.files) == {"scratch/note", "a.zarr/x/c/1"}
    assert written.files["scratch/note"] == {"bytes": 4, "blake2b": hashlib.blake2b(b"here").hexdigest()}
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in metadata] == before


def test_nothing_is_done_before_it_is_committed(draft: Draft) -> None:
    (draft.path / "scratch/older").write_text("")
    output = ShardOutput(draft.path, {"n": 1})
    output.add("kept").write_text("here")
    output.discard("scratch/older")
    written = output.written("one")
    assert not draft.done("one")
    assert (draft.path / "scratch/older").exists()
    draft.append(written)
    assert draft.done("one")
    assert draft.record("one") == {"n": 1}
    assert not (draft.path / "scratch/older").exists()
    assert list(draft.finish_files()) == ["kept"]
