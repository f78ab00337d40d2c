"""Engines of small models with memories, opened once."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.inspection.settings import Request
from tests.stages.small_store import ModelConfig
from tests.stages.small_text import built_index, text_model, text_tokens

if TYPE_CHECKING:
    from stages.serving.engine import Engine
    from tests.stages.serving.address import Address

READINGS = ("external:k=5,temperature=2,lambda=0.4", "long:size=7,theta=0.5,lambda=0.1")
WINDOW = 24

NEEDED = ("starlette", "uvicorn", "prometheus_client")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["test_*.py"]
"""Tests that need the extra `serve`."""


def wide_model(store: Store, tokens: Artifact) -> Artifact:
    """A model that reads windows of 24 tokens."""
    sizes = {"max_positions": 2 * WINDOW, "vocab_size": tokens.metrics["vocabulary_size"]}
    return text_model(store, tokens, ModelConfig().model | sizes, segment_length=WINDOW)


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder: Path = tmp_path_factory.mktemp("served")
    store = Store(folder / "store")
    return built_index(store, wide_model(store, text_tokens(store, folder, "bpe")))


@pytest.fixture(scope="session")
def engine(index: Artifact) -> "Engine":
    from stages.serving.engine import Engine

    request = Request(source=index.reference, memory=READINGS, device="cpu")
    return Engine.open(request, index.store, "small")


@pytest.fixture(scope="session")
def address(engine: "Engine") -> "Iterator[Address]":
    from tests.stages.serving.address import serving

    with serving(engine) as running:
        yield running
