"""What tests of several stages begin with; a module may have its own in place of it."""

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.builders.limits import limit
from tests.stages.small_store import small_model, small_tokens


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations in shards of two windows, so that histories are handed on; recent entries in
    chunks of a few.
    """
    limit(monkeypatch, tokens_per_shard=16, chunk_entries={"cpu": 40}, min_chunk_positions=3)


@pytest.fixture
def checked_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions are checked at several positions of each shard."""
    limit(monkeypatch, conditions_checked=12)


@pytest.fixture(scope="module")
def model(store: Store) -> Artifact:
    """Trained on the made tokens of `small_store`."""
    return small_model(store, small_tokens(store))
