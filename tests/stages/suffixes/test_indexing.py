"""The index of exact matches: made in shards, resumed, checked."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.index import BuildIndex, IndexConfig
from stages.suffixes.indexing import SORTING_BYTES, TEXT_BYTES, cut, symbol_counts
from stages.suffixes.open import open_contexts
from stages.suffixes.order import sort_contexts
from stages.suffixes.text import Text
from tests.oracles.suffixes import contexts
from tests.stages.kills import made_in_pieces
from tests.stages.small_store import array, small_tokens


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Shards of few contexts, and arrays of few rows."""
    monkeypatch.setattr("stages.suffixes.indexing.CONTEXTS_PER_SHARD", 30)
    monkeypatch.setattr("stages.suffixes.indexing.ROWS_PER_SHARD", 25)
    return Store(tmp_path / "store")


def built(store: Store, tokens: Artifact, **settings: object) -> Artifact:
    config = IndexConfig(index="exact", **settings)
    return make(BuildIndex(), config, {"source": tokens.reference}, store, Execution("cpu")).artifact


def test_the_arrays_are_the_sorted_contexts_of_a_split(store: Store) -> None:
    tokens = small_tokens(store)
    index = built(store, tokens, split="valid")
    ids, starts = (array(tokens, "tokens.zarr", f"valid/{name}") for name in ("ids", "doc_offsets"))
    known = contexts(ids, starts)
    assert array(index, "contexts.zarr", "order").tolist() == sorted(range(40), key=lambda i: (known[i], i))
    assert (index.metrics["rows"], index.metrics["bytes"], index.config["split"]) == (40, 200, "valid")
    assert store.get(index.reference).id == index.id and open_contexts(index).order.dtype == np.uint32


@pytest.mark.parametrize("logged", [True, False])
def test_killed_after_every_unit_it_is_the_same(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: bool
) -> None:
    whole = built(store, small_tokens(store))
    other = Store(tmp_path / "other")
    tokens = small_tokens(other)
    pieces, attempts = made_in_pieces(monkeypatch, lambda: built(other, tokens), logged=logged)
    assert pieces.manifest.files == whole.manifest.files and len(attempts.begun_with) > 6


def test_shards_hold_whole_symbols_and_as_few_as_can_be(store: Store) -> None:
    shards = cut([0, 10, 25, 4, 0, 70, 1, 1])
    assert [(one.low, one.high, one.count) for one in shards] == [(0, 2, 10), (2, 5, 29), (5, 6, 70), (6, 8, 2)]


def test_what_cannot_be_is_refused(store: Store) -> None:
    tokens = small_tokens(store, lengths={"train": 0, "valid": 30})
    with pytest.raises(ArtifactError, match=r"no text in split 'train'.*it has: valid"):
        built(store, tokens)
    with pytest.raises(UsageError, match="lists means nothing to an 'exact' index"):
        built(store, tokens, split="valid", lists=3)


def test_memory_is_as_much_as_is_forecast(store: Store) -> None:
    tokens = 200_000
    ids, offsets = np.random.default_rng(0).integers(0, 5000, tokens).astype(np.uint32), np.arange(0, tokens + 1, 500)
    tracemalloc.start()
    try:
        text = Text.of(ids, offsets, 5000)
        symbol_counts(text)
        assert tracemalloc.get_traced_memory()[1] < TEXT_BYTES * tokens
        tracemalloc.reset_peak()
        sort_contexts(text, np.arange(tokens))
        assert tracemalloc.get_traced_memory()[1] < (TEXT_BYTES + SORTING_BYTES) * tokens
    finally:
        tracemalloc.stop()
