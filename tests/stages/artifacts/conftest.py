"""What tests of artifacts begin with: a store of their own."""

from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from tests.stages.artifacts.toy import Squares, SquaresConfig


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def squares(store: Store) -> Artifact:
    return make(Squares(), SquaresConfig(), {}, store, Execution()).artifact
