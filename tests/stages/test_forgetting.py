"""What is forgotten is in no file of what is made afterwards; what is grown and cut is read as if
built at once.
"""

import json
from pathlib import Path

import faiss
import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.garbage import find_garbage, remove_garbage
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.lineage.rows import DatastoreRows
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.search.open import open_searcher
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.builders.forgetting import built, indexed, made, story, tokens_of
from tests.builders.forgetting import store as store
from tests.stages.notes import Notes
from tests.stages.small_store import array


def all_bytes(*artifacts: Artifact) -> bytes:
    return b"\0".join(
        path.read_bytes()
        for one in artifacts
        for path in sorted(one.path.rglob("*"))
        if path.is_file()
    )


def traces(datastore: Artifact, rows: slice, text: str) -> list[bytes]:
    """A document as it may lie in a file: its keys in both precisions, its ids, its words, hashes
    of its paragraphs.
    """
    keys = array(datastore, "datastore.zarr", "keys")[rows]
    ids = array(datastore, "datastore.zarr", "values")[rows]
    other = np.delete(
        array(datastore, "datastore.zarr", "keys"), np.arange(len(keys)) + rows.start, axis=0
    )
    own = [key for key in keys if not (key == other).all(axis=1).any()]
    assert len(own) > 40
    found = [key.astype(kind).tobytes() for key in own for kind in (np.float16, np.float32)]
    found += [
        ids[n : n + 8].astype(kind).tobytes()
        for n in range(0, 50, 8)
        for kind in (np.uint16, np.int32, np.int64)
    ]
    found += [" ".join(text.split()[n : n + 4]).encode() for n in range(0, 56, 4)]
    hashes = DatastoreRows(datastore).paragraphs(rows.start, rows.stop)[1]
    return found + [one.tobytes() for one in hashes]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"index": "flat", "lists": "auto", "probe": "auto"},
        {"index": "IVF8,SQ8", "lists": "auto"},
    ],
)
def test_what_is_forgotten_is_in_no_file_that_is_made_afterwards(
    store: Store, tmp_path: Path, settings
) -> None:
    before = built(store, tmp_path)
    index = indexed(store, before, **settings)
    gone = traces(before, slice(61 * 3, 61 * 4), story(4))
    held = all_bytes(before, index)
    assert sum(trace in held for trace in gone) > 45
    after = made(store, UpdateDatastore(), UpdateConfig(forget=("4.txt",)), before)
    changed = indexed(store, after, **settings)
    neighbors = made(store, PrecomputeNeighbors(), NeighborsConfig(), changed)
    left = all_bytes(after, changed, neighbors)
    assert not [trace for trace in gone if trace in left]
    assert b"4.txt" not in left
    assert after.metrics["documents"] == 7
    for artifact, name in ((neighbors, "mine"),):
        store.name(artifact, name)
    private = before.input("corpus")
    remove_garbage(store, find_garbage(store, unnamed=True))
    kinds = {one.reference for one in store.artifacts()}
    assert {before.reference, index.reference, private.reference}.isdisjoint(kinds)
    assert {after.reference, changed.reference, neighbors.reference} <= kinds
    words = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    assert not [trace for trace in gone if trace in words]


def test_a_changed_index_finds_what_one_built_anew_finds(store: Store, tmp_path: Path) -> None:
    datastore = built(store, tmp_path, seeds=range(1, 4))
    learned, notes = datastore.input("encoder").input("tokens"), Notes()
    index = indexed(store, datastore)
    for seed in range(4, 9):
        tokens = tokens_of(store, tmp_path / str(seed), seed, of=learned)
        datastore = made(store, UpdateDatastore(), UpdateConfig(), datastore, add=tokens)
        earlier, index = index, indexed(store, datastore, notes)
        assert index.input("previous").id == earlier.id
    datastore = made(store, UpdateDatastore(), UpdateConfig(forget=("2.txt", "5-6")), datastore)
    index = indexed(store, datastore, notes)
    assert "learned" in index.metrics
    keys = array(datastore, "datastore.zarr", "keys").astype(np.float32)
    searcher = open_searcher(index.file("index.faiss"), {**index.config, "probe": 8}, keys.shape)
    anew = indexed(store, datastore, update="none", index="flat", lists="auto", probe="auto")
    exact = open_searcher(anew.file("index.faiss"), anew.config, keys.shape)
    for found, true in zip(searcher.search(keys, 5), exact.search(keys, 5), strict=True):
        np.testing.assert_array_equal(found, true)
    opened = faiss.read_index(str(index.file("index.faiss")))
    lists = opened.invlists
    for number in range(8):
        ids = (
            faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))
            if lists.list_size(number)
            else []
        )
        assert list(ids) == sorted(ids)


def test_a_changed_index_that_is_interrupted_goes_on_with_the_same_bytes(
    store, tmp_path, monkeypatch
) -> None:
    from stages.search import build

    before = built(store, tmp_path, seeds=range(1, 4))
    indexed(store, before)
    more = tokens_of(
        store, tmp_path / "more", *range(20, 40), of=before.input("encoder").input("tokens")
    )
    after = made(store, UpdateDatastore(), UpdateConfig(forget=("0",)), before, add=more)
    whole = indexed(store, after)
    expected = whole.manifest.files
    store.remove(whole.reference)
    real, left = build.write_part, [2]

    def dies(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(build, "write_part", dies)
    with pytest.raises(KeyboardInterrupt):
        indexed(store, after)
    left[0], notes = 100, Notes()
    assert indexed(store, after, notes).manifest.files == expected
    assert any(info.startswith("resumed: 3 of ") for info in notes.infos)


def test_lists_that_no_longer_fit_say_so_and_what_to_do(store: Store, tmp_path: Path) -> None:
    datastore = built(store, tmp_path, seeds=[1])
    indexed(store, datastore)
    more = tokens_of(
        store, tmp_path / "more", *range(20, 28), of=datastore.input("encoder").input("tokens")
    )
    grown, notes = made(store, UpdateDatastore(), UpdateConfig(), datastore, add=more), Notes()
    changed = indexed(store, grown, notes)
    assert changed.metrics["learned"]["rows"] == 61
    (warning,) = [one for one in notes.warnings if "no longer fit" in one]
    assert warning.endswith(
        f"memlm build-index {grown.reference} --update none --store {store.root}"
    )


def test_an_index_that_cannot_be_changed_is_named_with_what_can_be_done(
    store: Store, tmp_path: Path
) -> None:
    before = built(store, tmp_path, seeds=range(1, 6))
    index = indexed(store, before, index="ivf-pq", code_bits=4, code_bytes=1)
    other = indexed(store, before, lists=4)
    after = made(store, UpdateDatastore(), UpdateConfig(forget=("0",)), before)
    assert (
        "previous"
        not in indexed(store, after, index="ivf-pq", code_bits=4, code_bytes=1).manifest.inputs
    )
    with pytest.raises(UsageError, match="what it learned of forgotten keys cannot be taken out"):
        indexed(store, after, update=index.reference, index="ivf-pq", code_bits=4, code_bytes=1)
    with pytest.raises(UsageError, match="has lists 4, not 8: ask for the same"):
        indexed(store, after, update=other.reference)
    with pytest.raises(
        UsageError,
        match=f"is of {before.reference}, but {before.reference} was not made from another",
    ):
        indexed(store, before, update=index.reference)


def test_names_and_sources_of_grown_rows_are_known(store: Store, tmp_path: Path) -> None:
    datastore = built(store, tmp_path, seeds=range(1, 4))
    learned = datastore.input("encoder").input("tokens")
    more = tokens_of(store, tmp_path / "more", 20, 21, of=learned)
    grown = made(store, UpdateDatastore(), UpdateConfig(forget=("2.txt",)), datastore, add=more)
    rows = DatastoreRows(grown)
    assert [rows.names.of(n) for n in range(4)] == ["1.txt", "3.txt", "20.txt", "21.txt"]
    assert [source.tokens.reference for source in rows.sources] == [
        datastore.input("corpus").reference,
        more.reference,
    ]
    sources, places = rows.runs.places_of(np.array([0, 60, 61, 121, 122, 200]))
    assert sources.tolist() == [0, 0, 0, 0, 1, 1]
    assert places.tolist() == [0, 60, 122, 182, 0, 78]
    told = json.loads(grown.file("sources.json").read_text())
    assert told[0]["paragraphs"] is None
    assert told[1]["paragraphs"]


def test_recall_of_a_changed_index_is_measured_in_proportion_to_what_changed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = built(store, tmp_path)
    index = indexed(store, before, recall=400)
    after = made(store, UpdateDatastore(), UpdateConfig(forget=("4.txt",)), before)
    share = after.metrics["forgotten"] / before.metrics["rows"]
    assert 40 < share * 400 < 100
    changed = indexed(store, after, recall=400)
    assert (index.metrics["queries"], changed.metrics["queries"]) == (400, 100)
    store.remove(changed.reference)
    monkeypatch.setattr("stages.indexing.vectors.FEWEST_QUERIES", 10)
    changed = indexed(store, after, recall=400)
    assert changed.metrics["queries"] == np.ceil(share * 400)
    assert changed.metrics["recall_error"].keys() == changed.metrics["recall"].keys()
    assert "recall_error" not in index.metrics
    assert "recall_error" not in indexed(store, after, recall=0).metrics
