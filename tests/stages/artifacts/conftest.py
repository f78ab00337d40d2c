"""What tests of artifacts begin with: a store of their own."""

from pathlib import Path

import pytest

from stages.artifacts.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")
