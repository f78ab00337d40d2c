"""Receipts of forgetting, and a secret of which no byte is left."""

import json
from pathlib import Path

import numpy as np
import pytest
import zarr

from stages.artifacts.artifact import Artifact
from stages.artifacts.garbage import find_garbage, remove_garbage
from stages.artifacts.store import Store
from stages.errors import DataError, UsageError
from stages.forgetting.question import DocumentQuestion
from stages.forgetting.receipt import (
    Receipt,
    checked_again,
    receipt_of,
    require_receipt_file,
)
from stages.forgetting.search import find_holders
from stages.lineage.corpus import token_text
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.reporting import Silent
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.stages.forgetting.conftest import KEY, Held, documents, indexed, made, tokenized


def forgotten(store: Store, datastore: Artifact, *words: str) -> Artifact:
    return made(store, UpdateDatastore(), UpdateConfig(forget=words), source=datastore)


def remaining(receipt: Receipt) -> set[str]:
    return {holding.reference for holding in receipt.checks[-1].remains}


def with_key(store: Store, ids: list[int]) -> set[str]:
    """References of the artifacts with the secret in a file, as bytes or as numbers of an array."""
    sought = [KEY.encode(), *(np.array(ids, kind).tobytes() for kind in ("<u2", "<i4", "<i8"))]
    found = set()
    for artifact in store.artifacts():
        files = [path.read_bytes() for path in artifact.path.rglob("*") if path.is_file()]
        # Zarr may compress: what it reads is looked at, too.
        for group in artifact.path.glob("*.zarr"):
            arrays = zarr.open_group(group, mode="r").members(max_depth=None)
            files += [
                np.asarray(array[:]).astype("<i8").tobytes()
                for _, array in arrays
                if isinstance(array, zarr.Array) and array.dtype.kind in "iu"
            ]
        if any(word in content for word in sought for content in files):
            found.add(artifact.reference)
    return found


def test_of_a_secret_no_byte_is_left_when_nobody_is_said_to_hold_it(
    own_store: Store, held: Held
) -> None:
    ids = token_text(held.public).ids(f"the key is {KEY} and no other")[4:-4]
    text_of_key = {held.tokens.reference, held.datastore.reference, held.report.reference}
    assert with_key(own_store, ids) == text_of_key

    after = forgotten(own_store, held.datastore, "mary.txt", "anna.txt")
    index = indexed(own_store, after)
    near = made(own_store, PrecomputeNeighbors(), NeighborsConfig(k=2), source=index)
    own_store.name(near, "near")
    receipt = receipt_of(after, own_store, Silent())
    holders = {one.reference for one in held.holders()}
    assert remaining(receipt) == holders

    own_store.remove(held.report.reference, held.figures.reference)
    remove_garbage(own_store, find_garbage(own_store, unnamed=True))
    receipt, answer = checked_again(receipt, own_store, Silent())
    assert not answer.holdings and not answer.unread and not remaining(receipt)
    assert {near.reference, after.reference} <= {one.reference for one in own_store.artifacts()}
    assert not with_key(own_store, ids)
    files = [path for path in own_store.root.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_receipt_says_what_was_replaced_and_what_remains(own_store: Store, held: Held) -> None:
    after = forgotten(own_store, held.datastore, "mary.txt", "anna.txt")
    receipt = receipt_of(after, own_store, Silent())
    assert receipt.names == ("anna.txt", "mary.txt")
    assert (receipt.documents, receipt.rows) == (2, after.metrics["forgotten"])
    assert [(one.before.reference, one.after.digest) for one in receipt.replaced] == [
        (held.datastore.reference, after.digest)
    ]
    digests = {one.reference: one.digest for one in receipt.held}
    assert digests[held.index.reference] == held.index.digest

    index = indexed(own_store, after)
    near = made(
        own_store,
        PrecomputeNeighbors(),
        NeighborsConfig(k=2),
        source=index,
        tokens=held.tokens,
    )
    receipt, _ = checked_again(receipt, own_store, Silent())
    replaced = {one.before.reference: one.after.reference for one in receipt.replaced}
    assert replaced == {
        held.datastore.reference: after.reference,
        held.index.reference: index.reference,
    }
    assert near.reference in remaining(receipt), "its queries are tokens of the document"
    own_store.remove(held.index.reference, held.neighbors.reference, near.reference)
    receipt, _ = checked_again(receipt, own_store, Silent())
    assert held.index.reference not in remaining(receipt)
    assert held.learned.reference in remaining(receipt), "a model cannot forget"
    assert len(receipt.checks) == 3


def test_a_receipt_has_no_word_of_the_text_and_is_read_again(
    own_store: Store, held: Held, tmp_path: Path
) -> None:
    receipt = receipt_of(forgotten(own_store, held.datastore, "mary.txt"), own_store, Silent())
    file = tmp_path / "mary.json"
    receipt.write(file)
    assert Receipt.read(file) == receipt
    content = file.read_text()
    words = set(documents()["mary.txt"].split())
    assert not [word for word in words if len(word) > 3 and word in content]
    assert json.loads(content)["names"] == ["mary.txt"]


def test_one_of_several_documents_of_a_name_is_known_by_its_place(
    own_store: Store, held: Held, tmp_path: Path
) -> None:
    text = "".join(f"{line}\n" for line in documents()["zoe.txt"].splitlines()[:6])
    lines = tokenized(own_store, tmp_path / "lines", {"zoe.txt": text}, of=held.public)
    more = made(own_store, UpdateDatastore(), UpdateConfig(), source=held.datastore, add=lines)
    after = forgotten(own_store, more, str(more.metrics["documents"] - 1))
    receipt = receipt_of(after, own_store, Silent())
    assert not receipt.names, "another document of that name stays"
    (spans,) = receipt.places.values()
    assert receipt.places.keys() == {more.reference}
    assert [span.document for span in spans] == ["zoe.txt"]
    own = {one.reference for one in receipt.checks[0].remains if one.document_spans}
    assert own == {more.reference}
    copies = {one.reference for one in receipt.checks[0].remains if one.copies}
    assert {held.tokens.reference, lines.reference, after.reference} <= copies
    whole = find_holders(own_store, DocumentQuestion(frozenset({"zoe.txt"})), Silent())
    assert after.reference in {one.reference for one in whole.holdings if one.document_spans}


def test_a_receipt_replaces_no_other_file(tmp_path: Path) -> None:
    notes = tmp_path / "notes.json"
    require_receipt_file(notes)
    for content in ('{"a": 1}', "\udcff"):
        notes.write_bytes(content.encode("utf-8", "surrogateescape"))
        with pytest.raises(DataError, match="is no receipt"):
            Receipt.read(notes)
        with pytest.raises(UsageError, match="name another file"):
            require_receipt_file(notes)
    with pytest.raises(UsageError, match="there is no folder"):
        require_receipt_file(tmp_path / "nowhere" / "receipt.json")
    with pytest.raises(UsageError, match="cannot be read"):
        Receipt.read(tmp_path / "nothing.json")
