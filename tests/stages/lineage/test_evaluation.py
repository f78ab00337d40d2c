"""Which neighbours may be read: of which tokens, how many, and none that hold the answers."""

from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError
from stages.index import BuildIndex, IndexConfig
from stages.lineage.evaluation import artifacts_read
from stages.lineage.neighbors import require_neighbors, require_some
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from tests.stages.small_store import small_model, small_tokens

FEWER = "train --set memory.k="


def built_index(store: Store, tokens: Artifact) -> Artifact:
    datastore = made(store, BuildDatastore(), DatastoreConfig(), small_model(store, tokens))
    return made(store, BuildIndex(), IndexConfig(index="flat"), datastore)


def made(store: Store, stage: Any, config: Any, source: Artifact, **references: str) -> Artifact:
    return make(
        stage, config, {"source": source.reference, **references}, store, Execution("cpu")
    ).artifact


@pytest.fixture(scope="module")
def index(store: Store) -> Artifact:
    return built_index(store, small_tokens(store))


def found(
    store: Store, index: Artifact, tokens: Artifact | None = None, **settings: Any
) -> Artifact:
    references = {} if tokens is None else {"tokens": tokens.reference}
    return made(
        store, PrecomputeNeighbors(), NeighborsConfig(**{"k": 2, **settings}), index, **references
    )


@pytest.mark.parametrize("exclude", ["self", "window:5", "document"])
def test_neighbours_that_leave_the_own_row_out_may_be_read(
    store: Store, index: Artifact, exclude: str
) -> None:
    require_neighbors(found(store, index, exclude=exclude), "train", 2, FEWER)


def test_more_than_are_stored_are_refused_with_both_ways_out(store: Store, index: Artifact) -> None:
    neighbors = found(store, index)
    finding = f"memlm precompute-neighbors {index.reference} --k 3"
    with pytest.raises(ArtifactError, match=f"memory.k=2.*{finding} --store "):
        require_neighbors(neighbors, "train", 3, FEWER)


def test_a_split_that_was_not_looked_up_is_refused(store: Store, index: Artifact) -> None:
    neighbors = found(store, index, queries=("test",))
    with pytest.raises(ArtifactError, match=r"'valid'.* --queries test,valid --k 2 --store "):
        require_neighbors(neighbors, "valid", 1, FEWER)


def test_own_rows_of_a_text_that_was_tokenized_again_are_refused(
    store: Store, index: Artifact
) -> None:
    again = small_tokens(store, lengths={"train": 90, "test": 60})
    neighbors = found(store, index, again, exclude="none")
    with pytest.raises(ArtifactError, match=f"--exclude self --tokens {again.reference}"):
        require_neighbors(neighbors, "train", 2, FEWER)
    require_neighbors(neighbors, "test", 2, FEWER)
    require_neighbors(found(store, index, again), "train", 2, FEWER)


@pytest.mark.parametrize(
    ("exclude", "mend"), [("document", "memlm tokenize --documents"), ("window:100", "a smaller N")]
)
def test_a_split_without_any_neighbour_is_refused(store: Store, exclude: str, mend: str) -> None:
    index = built_index(store, small_tokens(store, lengths={"train": 9, "valid": 20}))
    neighbors = found(store, index, exclude=exclude)
    finding = f"memlm precompute-neighbors {index.reference} --exclude window:N"
    with pytest.raises(ArtifactError, match=f"--exclude {exclude} .*{finding} --k 2.*{mend}"):
        require_some(neighbors, "train")
    require_some(neighbors, "valid")


@pytest.mark.parametrize("kind", ["index", "neighbors"])
def test_memories_of_another_vocabulary_are_refused(store: Store, kind: str) -> None:
    foreign = built_index(store, small_tokens(store, tokenizer="foreign"))
    memory = foreign if kind == "index" else found(store, foreign)
    model = small_model(store, small_tokens(store))
    own = model.input("tokens").reference
    chain = f"memlm train {own} --store {store.root}, memlm build-datastore, memlm build-index"
    ending = ", memlm precompute-neighbors$" if kind == "neighbors" else "$"
    with pytest.raises(ArtifactError, match=f"{memory.reference}.*{own}; .*{chain}{ending}"):
        artifacts_read(model, memory, {}, store)


def test_everything_that_an_index_leads_to_is_read(store: Store, index: Artifact) -> None:
    neighbors = found(store, index)
    model = index.find("encoder")
    datastore = {"index": index.id, "datastore": index.find("datastore").id, "encoder": model.id}
    own = {"model": model.id, "tokens": model.input("tokens").id}
    read = {role: artifact.id for role, artifact in artifacts_read(model, index, {}, store).items()}
    assert read == own | datastore
    read = {
        role: artifact.id for role, artifact in artifacts_read(model, neighbors, {}, store).items()
    }
    assert read == own | datastore | {"neighbors": neighbors.id}
