"""Every key of an index, changed or built anew, is the row that the changed datastore has."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.builders.forgetting import built, indexed, made, tokens_of
from tests.builders.forgetting import store as store
from tests.oracles.index_rows import differing_rows
from tests.stages.small_store import array

AUTO = {"lists": "auto", "probe": "auto"}
KINDS = {
    "ivf-flat": {},
    "ivf-pq": {"index": "ivf-pq", "code_bits": 4, "code_bytes": 1},
    "flat": {"index": "flat", **AUTO},
    "IVF8,Flat": {"index": "IVF8,Flat", "lists": "auto"},
    "IVF8,SQfp16": {"index": "IVF8,SQfp16", "lists": "auto"},
    "PCA4,IVF8,Flat": {"index": "PCA4,IVF8,Flat", "lists": "auto"},
}
CHANGED = {
    "add": set(KINDS) - {"flat"},
    "forget": {"ivf-flat", "IVF8,Flat"},
    "both": {"ivf-flat", "IVF8,Flat"},
}
"""Kinds that are changed in place; the others are built anew."""
ONE_OF_EACH = ("ivf-flat", "ivf-pq", "flat")
"""Kinds that are changed by every step, by additions, by none."""
STEPS = {
    "add": (True, ()),
    "forget": (False, ("0", "3.txt", "5")),
    "both": (True, ("0", "3.txt", "5")),
}


def wrong_rows(index: Artifact, datastore: Artifact) -> list[int]:
    return differing_rows(index.file("index.faiss"), array(datastore, "datastore.zarr", "keys"))


@pytest.mark.parametrize(
    ("reset", "kinds"), [("none", KINDS), ("document", ONE_OF_EACH)], ids=["none", "document"]
)
def test_every_key_of_an_index_is_the_row_of_its_datastore(
    store: Store, tmp_path: Path, reset: str, kinds: Iterable[str]
) -> None:
    """A second step is one that adds and forgets: of kinds that it builds anew once is enough."""
    before = built(store, tmp_path, reset=reset)
    learned = before.input("encoder").input("tokens")
    more = tokens_of(store, tmp_path / "more", 20, 21, of=learned)
    again = tokens_of(store, tmp_path / "again", 30, of=learned)
    for kind in kinds:
        assert not wrong_rows(indexed(store, before, **KINDS[kind]), before)
    for step, (adds, forget) in STEPS.items():
        after = made(
            store,
            UpdateDatastore(),
            UpdateConfig(forget=forget),
            before,
            **({"add": more} if adds else {}),
        )
        assert bool(after.metrics["encoded_again"]) == (bool(forget) and reset == "none")
        later = made(store, UpdateDatastore(), UpdateConfig(forget=("1", "4")), after, add=again)
        for kind in kinds:
            changed = indexed(store, after, **KINDS[kind])
            assert ("previous" in changed.manifest.inputs) == (kind in CHANGED[step]), (step, kind)
            assert wrong_rows(changed, after) == [], (step, kind)
            if step != "add" and kind not in CHANGED["both"]:
                continue
            twice = indexed(store, later, **KINDS[kind])
            assert ("previous" in twice.manifest.inputs) == (kind in CHANGED["both"]), (step, kind)
            assert wrong_rows(twice, later) == [], (step, kind)


def test_keys_that_were_encoded_again_leave_no_trace_of_the_old_ones(
    store: Store, tmp_path: Path
) -> None:
    before = built(store, tmp_path, reset="none")
    indexed(store, before)
    after = made(store, UpdateDatastore(), UpdateConfig(forget=("3.txt",)), before)
    changed = indexed(store, after)
    rows = after.metrics["encoded_again"]
    assert rows
    old = array(before, "datastore.zarr", "keys")[61 * 3 : 61 * 3 + rows]
    content = changed.file("index.faiss").read_bytes()
    assert not [key for key in old if key.tobytes() in content]


def test_lists_rise_in_rows_where_some_were_encoded_again(store: Store, tmp_path: Path) -> None:
    from stages.search.lists import InvertedLists
    from stages.search.open import read_index

    before = built(store, tmp_path, reset="none")
    indexed(store, before, lists=2, probe=2)
    after = made(store, UpdateDatastore(), UpdateConfig(forget=("3.txt",)), before)
    lists = InvertedLists(read_index(indexed(store, after, lists=2, probe=2).file("index.faiss")))
    assert all((np.diff(lists.ids(number)) > 0).all() for number in lists.filled)
