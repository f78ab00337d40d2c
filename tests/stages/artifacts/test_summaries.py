"""Summaries say what manifests say, whatever lies in the file that saves reading these."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts import summaries as module
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.artifacts.summaries import Summary, summaries
from tests.stages.artifacts.toy import Cubes, Squares, SquaresConfig, restate, summary_of


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of two artifacts, and a clock by which they have been there for a while."""
    store = Store(tmp_path / "store")
    squares = make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
    make(Cubes(), SquaresConfig(), {"source": squares.reference}, store, Execution())
    monkeypatch.setattr(module, "SETTLED_SECONDS", -1.0)
    return store


def manifests(store: Store) -> list[Summary]:
    return [summary_of(artifact) for artifact in store.artifacts()]


def index(store: Store) -> Path:
    return store.root / ".stamps" / "manifests.json"


def test_no_manifest_is_read_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = summaries(store)
    assert first == manifests(store)
    monkeypatch.setattr(module.Manifest, "read", lambda folder: pytest.fail("was read"))
    assert summaries(store) == first


def test_changes_are_seen(store: Store) -> None:
    summaries(store)
    tokens, model = store.artifacts()
    restate(tokens.path, lambda manifest: manifest.update(created="2000-01-01"))
    assert summaries(store) == manifests(store) and summaries(store)[0].created == "2000-01-01"
    (tokens.path / "manifest.json").write_text("{")
    assert [s.reference for s in summaries(store)] == [model.reference]
    store.remove(model.reference)
    assert summaries(store) == []


def test_a_manifest_that_was_just_written_is_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a tick of the clock another content can have the same times."""
    monkeypatch.setattr(module, "SETTLED_SECONDS", 60.0)
    tokens = summaries(store)[0]
    path = store.root / tokens.reference / "manifest.json"
    status = path.stat()
    restate(path.parent, lambda manifest: manifest.update(created="2000-01-01"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert summaries(store)[0].created == "2000-01-01"


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_file_tells_nothing(
    tmp_path_factory: pytest.TempPathFactory, place: float, bit: int, cut: bool
) -> None:
    root = tmp_path_factory.getbasetemp() / "summaries"
    store = Store(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SETTLED_SECONDS", -1.0)
        make(Squares(), SquaresConfig(), {}, store, Execution())
        right = summaries(store)
        content = bytearray(index(store).read_bytes())
        content[int(place * len(content))] ^= 1 << bit
        index(store).write_bytes(content[: int(place * len(content))] if cut else content)
        assert summaries(store) == right == manifests(store)


def test_verified_inputs_read_every_manifest(store: Store) -> None:
    right = summaries(store)
    content = index(store).read_bytes()
    lied = content.partition(b"\n")[2].replace(b"2026", b"1999")
    index(store).write_bytes(module._checksum(lied) + b"\n" + lied)
    assert summaries(Store(store.root, verify_inputs=True)) == right
