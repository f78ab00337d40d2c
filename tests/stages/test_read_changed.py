"""Every reader of datastores, on a datastore with documents added and others forgotten."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import UsageError
from stages.index import BuildIndex
from stages.inspection.inspect import inspect_split
from stages.inspection.request import Request
from stages.lineage.neighbors import require_neighbors
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.search.config import IndexConfig
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from stages.training.training_data import map_neighbors
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.stages.slow_evaluation import evaluated, metrics
from tests.stages.small_store import array
from tests.stages.small_text import story, text_model, text_tokens

FORGOTTEN = (2, 5)
READING = "external:k=6,temperature=2,lambda=0.4"


def made(store: Store, stage: Any, config: Any, **references: Any) -> Artifact:
    given = {name: getattr(one, "reference", one) for name, one in references.items()}
    return make(stage, config, given, store, Execution("cpu")).artifact


@pytest.fixture(scope="module")
def tokens(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return text_tokens(store, tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def more(store: Store, tokens: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    file: Path = tmp_path_factory.mktemp("more") / "later.txt"
    file.write_text(story(12, 7))
    return made(
        store,
        Tokenize(),
        TokenizeConfig(documents="blank-line"),
        train=[str(file)],
        tokenizer=tokens,
    )


@pytest.fixture(scope="module")
def whole(store: Store, tokens: Artifact) -> Artifact:
    return made(store, BuildDatastore(), DatastoreConfig(), source=text_model(store, tokens))


@pytest.fixture(scope="module")
def index(store: Store, whole: Artifact, more: Artifact) -> Artifact:
    config = UpdateConfig(forget=tuple(map(str, FORGOTTEN)))
    return made(
        store,
        BuildIndex(),
        IndexConfig(),
        source=made(store, UpdateDatastore(), config, source=whole, add=more),
    )


def document_of(tokens: Artifact, split: str = "train") -> np.ndarray:
    """Number of each token's document."""
    offsets = array(tokens, "tokens.zarr", f"{split}/doc_offsets")
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def document_of_rows(tokens: Artifact, more: Artifact) -> np.ndarray:
    """Each row's document, numbered in the split that was stored first; -1 for added rows."""
    documents = document_of(tokens)
    return np.append(documents[~np.isin(documents, FORGOTTEN)], np.full(len(document_of(more)), -1))


@pytest.mark.parametrize("exclude", ["self", "document"])
def test_each_token_finds_the_nearest_rows_except_its_own(
    store, tokens, more, whole, index, exclude
):
    neighbors = made(
        store, PrecomputeNeighbors(), NeighborsConfig(k=3, exclude=exclude), source=index
    )
    ids, distances = (
        array(neighbors, "neighbors.zarr", f"train/{name}") for name in ("ids", "distances")
    )
    queries = array(whole, "datastore.zarr", "keys").astype(np.float64)
    keys = array(index.input("datastore"), "datastore.zarr", "keys").astype(np.float64)
    documents, rows = document_of(tokens), document_of_rows(tokens, more)
    places = np.append(
        np.flatnonzero(~np.isin(documents, FORGOTTEN)), np.full((rows < 0).sum(), -1)
    )
    for token, query in enumerate(queries):
        allowed = rows != documents[token] if exclude == "document" else places != token
        assert allowed[ids[token]].all()
        nearest = np.sort(((keys[allowed] - query) ** 2).sum(axis=1))[:3]
        np.testing.assert_allclose(distances[token], nearest, rtol=0.02, atol=0.02)
    require_neighbors(neighbors, "train", 3, "")


def test_stored_and_searched_neighbours_give_the_same_report(store, index):
    with pytest.raises(UsageError, match="was made of 'train', the split that is scored"):
        evaluated(store, index, READING, split="train", tune_split=None)
    neighbors = made(
        store, PrecomputeNeighbors(), NeighborsConfig(k=6, exclude="document"), source=index
    )
    settings = {"split": "train", "tune_split": None, "exclude": "document"}
    searched, stored = (evaluated(store, one, READING, **settings) for one in (index, neighbors))
    logs = [array(one, "scores.zarr", "logp_memory") for one in (searched, stored)]
    np.testing.assert_allclose(np.exp(logs[0]), np.exp(logs[1]), atol=0.02)
    assert metrics(searched)["exclude"] == "document"


def test_rows_name_their_text_and_their_documents(store, tokens, more, index):
    found = inspect_split(
        Request(source=index.reference, memory=(READING,), device="cpu"), store, "test", 3, 9, 6
    )
    sources = [context.source for token in found.tokens for context in token.contexts]
    values, rows = (
        array(index.input("datastore"), "datastore.zarr", "values"),
        document_of_rows(tokens, more),
    )
    words = {id: word for word, id in _vocabulary(tokens).items()}
    assert {source.name for source in sources} == {"train.txt", "later.txt"}
    for source in sources:
        assert source.split == "rows"
        assert source.token.strip() == words[values[source.row]].strip()
        assert (source.name == "later.txt") == (rows[source.row] < 0)


def _vocabulary(tokens: Artifact) -> dict[str, int]:
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(tokens.file("tokenizer.json"))).get_vocab()


def test_reports_count_the_paragraphs_of_the_remaining_documents(store, tokens, more, index):
    repeated = metrics(evaluated(store, index, READING, tune_split=None))[
        "outside_repeated_paragraphs"
    ]
    assert [(text["corpus"], text["read_by"]) for text in repeated["texts"]] == [
        (tokens.reference, ["model"]),
        (tokens.reference, ["datastore"]),
        (more.reference, ["datastore"]),
    ]
    own = metrics(evaluated(store, index, READING, split="train", tune_split=None, exclude="self"))
    learned, left, added = own["outside_repeated_paragraphs"]["texts"]
    documents = document_of(tokens)
    assert learned["repeated_share"] == 1
    assert left["repeated_share"] == pytest.approx((~np.isin(documents, FORGOTTEN)).mean())
    assert added["repeated_share"] == 0


def test_training_reads_the_tokens_of_its_rows(store, index, tmp_path):
    neighbors = made(store, PrecomputeNeighbors(), NeighborsConfig(k=2), source=index)
    mapped = map_neighbors(neighbors, ["train", "valid"], 2, tmp_path)
    values = array(index.input("datastore"), "datastore.zarr", "values")
    for split, held in mapped.items():
        np.testing.assert_array_equal(
            held, values[array(neighbors, "neighbors.zarr", f"{split}/ids")]
        )


def test_it_can_be_read_after_its_inputs_are_removed(store, whole, more, index):
    before = metrics(evaluated(store, index, READING, tune_split=None))
    for gone in (whole, more):
        store.remove(gone.reference)
    again = metrics(evaluated(store, index, READING, tune_split=None, context=8, stride=7))
    assert again["tokens"] == before["tokens"]
    inspect_split(
        Request(source=index.reference, memory=(READING,), device="cpu"), store, "test", 3, 2, 6
    )
