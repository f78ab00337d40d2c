from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError
from stages.lineage.corpus import require_split
from stages.lineage.sources import own_splits
from tests.stages.small_store import small_model, small_tokens


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def datastore(store: Store, tokens: Artifact, split: str) -> Artifact:
    references = {"source": small_model(store, tokens).reference}
    return make(
        BuildDatastore(), DatastoreConfig(split=split), references, store, Execution("cpu")
    ).artifact


@pytest.mark.parametrize(
    ("lengths", "seed", "own"),
    [
        ({"train": 90, "valid": 40, "test": 35}, 0, {"train"}),
        ({"train": 90, "test": 60}, 0, {"train"}),
        ({"test": 90}, 0, {"test"}),
        ({"train": 91}, 0, set()),
        ({"train": 90}, 1, set()),
    ],
)
def test_a_split_is_the_datastores_own_if_its_token_ids_are_the_same(
    store: Store, lengths: dict[str, int], seed: int, own: set[str]
) -> None:
    stored = datastore(store, small_tokens(store), "train")
    assert own_splits(stored, small_tokens(store, lengths=lengths, seed=seed)) == own


def test_the_own_split_is_the_one_that_was_stored(store: Store) -> None:
    tokens = small_tokens(store)
    assert own_splits(datastore(store, tokens, "valid"), tokens) == {"valid"}


def test_a_missing_split_is_refused_with_the_command_that_makes_it(store: Store) -> None:
    tokens = small_tokens(store, lengths={"train": 9, "valid": 9, "test": 0})
    require_split(tokens, "train")
    tokenize = f"memlm tokenize --tokenizer {tokens.reference} --test FILE --store {store.root}"
    with pytest.raises(ArtifactError, match=f"{tokens.reference}.*{tokenize}$"):
        require_split(tokens, "test")
    with pytest.raises(ArtifactError, match=r"'vaild'.*'valid'"):
        require_split(tokens, "vaild")
    with pytest.raises(ArtifactError, match="'news'"):
        require_split(tokens, "news")
    short = small_tokens(store, lengths={"train": 9})
    with pytest.raises(ArtifactError, match=f"'test'.*{short.reference} --test FILE --store"):
        require_split(short, "test")
