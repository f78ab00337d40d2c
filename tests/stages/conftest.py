"""What tests of several stages begin with; a module may have its own in place of it."""

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.stages.small_store import small_model, small_tokens


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def model(store: Store) -> Artifact:
    """Trained on the made tokens of `small_store`."""
    return small_model(store, small_tokens(store))
