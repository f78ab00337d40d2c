"""Datastores that grow and forget, against those that are built at once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, UsageError
from stages.lineage.rows import DatastoreRows
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from stages.updating.work import UpdateWork
from tests.builders.limits import limit
from tests.stages.kills import made_in_pieces, states
from tests.stages.small_store import array, small_model, small_tokens

LSTM = {"backbone": "lstm", "vocab_size": 11, "layers": 1, "width": 8, "dropout": 0.0}
XL = {
    "backbone": "transformer-xl",
    "vocab_size": 11,
    "layers": 2,
    "width": 8,
    "heads": 2,
    "ffn_width": 8,
}
XL |= {"segment_length": 8, "mem_length": 6}


@pytest.fixture(params=[2**24, 32 * 10], ids=["one shard", "shards of ten rows"])
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Store:
    limit(monkeypatch, shard_bytes=request.param)
    return Store(tmp_path / "store")


@pytest.fixture
def model(store: Store) -> Artifact:
    return small_model(store, small_tokens(store))


def build(store: Store, model: Artifact, **settings) -> Artifact:
    references = {"source": model.reference, "tokens": settings.pop("tokens", None)}
    config = DatastoreConfig(**{"dtype": "float32", **settings})
    return make(BuildDatastore(), config, references, store, Execution()).artifact


def update(store: Store, datastore: Artifact, add: Artifact | None = None, **settings) -> Artifact:
    references = {"source": datastore.reference, "add": None if add is None else add.reference}
    return make(
        UpdateDatastore(), UpdateConfig(**settings), references, store, Execution()
    ).artifact


def keys_of(datastore: Artifact) -> np.ndarray:
    return array(datastore, "datastore.zarr", "keys")


def values_of(datastore: Artifact) -> np.ndarray:
    return array(datastore, "datastore.zarr", "values")


def documents(rows: int, *chosen: int) -> np.ndarray:
    """Rows of some documents of nine tokens."""
    return np.concatenate([np.arange(9 * n, min(9 * n + 9, rows)) for n in chosen])


@pytest.mark.parametrize("backbone", [None, LSTM])
def test_what_is_added_is_as_if_built_by_itself(store, backbone):
    tokens, other = (
        small_tokens(store),
        small_tokens(store, seed=1, lengths={"train": 47, "valid": 40}),
    )
    model = small_model(store, tokens, **({} if backbone is None else {"model": backbone}))
    key = {} if backbone is None else {"key": "hidden"}
    first, second = build(store, model, **key), build(store, model, tokens=other.reference, **key)
    grown = update(store, first, other)
    np.testing.assert_array_equal(keys_of(grown)[:90], keys_of(first))
    np.testing.assert_allclose(keys_of(grown)[90:], keys_of(second), atol=1e-6)
    np.testing.assert_array_equal(
        values_of(grown), np.concatenate([values_of(first), values_of(second)])
    )
    offsets = [*range(0, 90, 9), *range(90, 90 + 47, 9), 137]
    assert array(grown, "datastore.zarr", "doc_offsets").tolist() == offsets
    assert {name: grown.config[name] for name in ("split", "dtype", "context")} == {
        "split": "train",
        "dtype": "float32",
        "context": 8,
    }
    assert (grown.metrics["rows"], grown.metrics["added"], grown.metrics["forgotten"]) == (
        137,
        47,
        0,
    )


@pytest.mark.parametrize("reset", ["none", "document"])
def test_what_stays_stays_and_knows_nothing_of_what_went(store, model, reset):
    """Windows of eight; a document of nine begins one place further into its window than the one
    before.
    """
    whole = build(store, model, reset=reset)
    cut = update(store, whole, forget=("1", "4-5", "9"))
    stays = documents(90, 0, 2, 3, 6, 7, 8)
    np.testing.assert_array_equal(values_of(cut), values_of(whole)[stays])
    again = set() if reset == "document" else {9 + n for n in range(6)} | {27 + n for n in range(2)}
    same = [n for n in range(len(stays)) if n not in again]
    np.testing.assert_array_equal(keys_of(cut)[same], keys_of(whole)[stays][same])
    assert cut.metrics["encoded_again"] == len(again)
    if again:
        assert (
            np.abs(keys_of(cut)[sorted(again)] - keys_of(whole)[stays][sorted(again)]).max(axis=1)
            > 1e-3
        ).all()


def test_by_document_a_cut_datastore_is_the_one_of_what_is_left(store, model):
    """But for the first token of a document, which reads the last of the one before where no
    `<eos>` is between.
    """
    whole = build(store, model, reset="document")
    cut = update(store, whole, forget=("3-9",))
    alone = small_tokens(store, lengths={"train": 27})
    ids = array(model.input("tokens"), "tokens.zarr", "train/ids")[:27]
    np.testing.assert_array_equal(values_of(cut), ids)
    np.testing.assert_array_equal(keys_of(cut), keys_of(whole)[:27])
    assert alone.metrics["splits"]["train"]["tokens"] == cut.metrics["rows"]


def test_steps_may_be_taken_one_by_one_or_together(store, model):
    whole = build(store, model)
    parts = [small_tokens(store, seed=seed, lengths={"train": 20}) for seed in (1, 2)]
    steps = update(
        store,
        update(store, update(store, whole, parts[0]), forget=("2", "11")),
        parts[1],
        forget=("0",),
    )
    assert steps.metrics["documents"] == 10 + 3 + 3 - 3
    values = np.concatenate(
        [values_of(whole), *(array(p, "tokens.zarr", "train/ids") for p in parts)]
    )
    gone = np.concatenate([documents(90, 0, 2), np.arange(99, 108)])
    np.testing.assert_array_equal(values_of(steps), np.delete(values, gone))


def changed(store: Store, backbone: dict | None) -> Callable[[], Artifact]:
    """What adds 47 rows, in documents, to ninety of which 27 go: 110 rows in shards of ten or
    eight.
    """
    model = small_model(
        store, small_tokens(store), **({} if backbone is None else {"model": backbone})
    )
    whole = build(store, model, **({} if backbone is None else {"key": "hidden"}))
    other = small_tokens(store, seed=1, lengths={"train": 47})
    return lambda: update(store, whole, other, forget=("1", "4-5"))


@pytest.fixture
def cut_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    limit(monkeypatch, shard_bytes=32 * 10)
    return Store(tmp_path / "store")


SELDOM = pytest.mark.endurance
"""Of the pairs below one without a state, one with a state either way are enough from day to day.
"""


@pytest.mark.parametrize(
    ("backbone", "logged"),
    [
        (None, False),
        (LSTM, False),
        (XL, True),
        pytest.param(None, True, marks=SELDOM),
        pytest.param(XL, False, marks=SELDOM),
    ],
)
def test_a_kill_at_any_shard_changes_no_byte_and_costs_no_shard_before_it(
    cut_store, monkeypatch, backbone, logged
):
    change = changed(cut_store, backbone)
    undisturbed = change()
    cut_store.remove(undisturbed.reference)
    made, attempts = made_in_pieces(monkeypatch, change, logged=logged)
    assert made.manifest.files == undisturbed.manifest.files
    assert made.metrics["rows"] == 110
    shards = sum(file.startswith("datastore.zarr/keys/c/") for file in made.manifest.files)
    assert shards >= 11
    assert attempts.begun_with == list(
        range(len(["sources", "documents", *range(shards), "finish"]))
    )
    assert attempts.most_states <= (0 if backbone is None else 3)


@pytest.mark.parametrize("backbone", [None, LSTM, XL])
def test_shards_that_are_damaged_are_made_again_without_the_states_before_them(
    cut_store, monkeypatch, backbone
):
    change = changed(cut_store, backbone)
    undisturbed = change()
    cut_store.remove(undisturbed.reference)
    with monkeypatch.context() as patched:
        patched.setattr(UpdateWork, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            change()
    draft = cut_store.draft_folder("datastore", undisturbed.id)
    assert len(states(draft / "scratch")) == (backbone is not None)
    for shard in (1, 7, 8, 10):
        (draft / f"datastore.zarr/keys/c/{shard}/0").write_bytes(b"damaged")
    assert change().manifest.files == undisturbed.manifest.files


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A datastore of which nothing is changed."""
    store = Store(tmp_path_factory.mktemp("whole"))
    return build(store, small_model(store, small_tokens(store)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "name tokens to --add, documents to --forget"),
        ({"forget": ("10",)}, "no document 10: the datastore has 0 to 9"),
        ({"forget": ("5-4",)}, "no document 5-4"),
        ({"forget": ("a.txt",)}, "names were not kept; give numbers, 0 to 9"),
        (
            {"forget": ("0-9",)},
            "This would forget all of datastore/.*; remove it instead: memlm artifacts rm datastore/",
        ),
        ({"forget": ("1",), "split": "valid"}, "--split valid belongs to tokens to add"),
        ({"forget": ("1",), "context": 4}, "have context 8, and so must those that are added"),
        ({"forget": ("@nowhere",)}, "nowhere, which names documents, cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused(whole, settings, words):
    with pytest.raises(UsageError, match=words):
        update(whole.store, whole, **settings)


def test_paragraphs_without_as_many_hashes_are_damage(whole):
    rows = DatastoreRows(update(whole.store, whole, forget=("1",)))
    text = rows.text
    vars(rows)["text"] = replace(text, paragraph_hashes=text.paragraph_hashes[:1])
    with pytest.raises(
        ArtifactError,
        match=r"datastore/.* is damaged: of [\d,]+ paragraphs it has 1 hashes\. Make it",
    ):
        rows.paragraphs()


def test_the_same_split_is_not_added_twice(whole):
    with pytest.raises(UsageError, match=r"has rows of 'train' of tokens/.* already"):
        update(whole.store, whole, whole.input("encoder").input("tokens"))
