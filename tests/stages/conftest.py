"""What tests of several stages begin with; a module may have its own in place of it."""

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.stages.small_store import small_model, small_tokens


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations in shards of two windows, so that histories are handed on; recent entries in
    chunks of a few.
    """
    monkeypatch.setattr("stages.evaluation.plan.MOST_TOKENS_PER_SHARD", 16)
    monkeypatch.setattr("stages.retrieval.sources.recent.CHUNK_ENTRIES", {"cpu": 40})
    monkeypatch.setattr("stages.retrieval.sources.recent.FEWEST_POSITIONS", 3)


@pytest.fixture
def checked_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions are checked at several positions of each shard."""
    monkeypatch.setattr("stages.evaluation.figures.conditions.POSITIONS", 12)


@pytest.fixture(scope="module")
def model(store: Store) -> Artifact:
    """Trained on the made tokens of `small_store`."""
    return small_model(store, small_tokens(store))
