"""The index of exact matches: made in shards, resumed, checked."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.output import ProgressLog, Written
from stages.artifacts.stage import Execution, Job
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.index import BuildIndex, IndexConfig
from stages.suffixes import text as text_module
from stages.suffixes.indexing import SORTING_BYTES, opened_bytes, scratch_bytes
from stages.suffixes.sorting import open_contexts
from stages.suffixes.text import Text, collected, sort_contexts
from tests.builders.limits import limit
from tests.oracles.suffixes import contexts
from tests.stages.kills import made_in_pieces
from tests.stages.small_store import VOCABULARY, SmallTokens, TokensConfig, array, small_tokens


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Shards of few contexts, and arrays of few rows."""
    limit(monkeypatch, contexts_per_shard=30, suffixes_per_shard=25)
    return Store(tmp_path / "store")


def built(
    store: Store, tokens: Artifact, update: Artifact | str | None = None, **settings: object
) -> Artifact:
    config = IndexConfig(index="exact", **settings)
    named = update.reference if isinstance(update, Artifact) else update
    references = {"source": tokens.reference, "update": named}
    return make(BuildIndex(), config, references, store, Execution("cpu")).artifact


def test_the_arrays_are_the_sorted_contexts_of_a_split(store: Store) -> None:
    tokens = small_tokens(store)
    index = built(store, tokens, split="valid")
    ids, starts = (array(tokens, "tokens.zarr", f"valid/{name}") for name in ("ids", "doc_offsets"))
    known = contexts(ids, starts)
    assert array(index, "contexts.zarr", "order").tolist() == sorted(
        range(40), key=lambda i: (known[i], i)
    )
    assert (index.metrics["rows"], index.metrics["bytes"], index.config["split"]) == (
        40,
        200,
        "valid",
    )
    assert (
        store.get(index.reference).id == index.id and open_contexts(index).order.dtype == np.uint32
    )


@pytest.mark.parametrize("logged", [True, False])
def test_killed_after_every_unit_it_is_the_same(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: bool
) -> None:
    whole = built(store, small_tokens(store))
    other = Store(tmp_path / "other")
    tokens = small_tokens(other)
    pieces, attempts = made_in_pieces(monkeypatch, lambda: built(other, tokens), logged=logged)
    assert pieces.manifest.files == whole.manifest.files and len(attempts.begun_with) > 6


def test_what_cannot_be_is_refused(store: Store) -> None:
    tokens = small_tokens(store, lengths={"train": 0, "valid": 30})
    with pytest.raises(ArtifactError, match=r"no text in split 'train'.*it has: valid"):
        built(store, tokens)
    for settings in ({"lists": 3}, {"recall": 5}):
        with pytest.raises(
            UsageError, match=f"{next(iter(settings))} means nothing to an 'exact' index"
        ):
            built(store, tokens, split="valid", **settings)


def test_memory_is_as_much_as_is_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is mapped is none of it: with little room the text takes less than its arrays."""
    monkeypatch.setattr(text_module, "IN_MEMORY", 100_000)
    monkeypatch.setattr(text_module, "AT_ONCE", 10_000)
    monkeypatch.setattr("stages.suffixes.indexing.IN_MEMORY", 100_000)
    monkeypatch.setattr("stages.suffixes.indexing.AT_ONCE", 10_000)
    tokens = 200_000
    ids, offsets = (
        np.random.default_rng(0).integers(0, 5000, tokens).astype(np.uint32),
        np.arange(0, tokens + 1, 500),
    )
    blocks = (ids[start : start + 10_000] for start in range(0, tokens, 10_000))
    tracemalloc.start()
    try:
        text = Text.of(collected(blocks, tokens, ids.dtype), offsets, 5000)
        assert tracemalloc.get_traced_memory()[1] < opened_bytes(tokens) < 5 * tokens
        tracemalloc.reset_peak()
        sort_contexts(text, np.arange(tokens))
        assert tracemalloc.get_traced_memory()[1] < opened_bytes(tokens) + SORTING_BYTES * tokens
    finally:
        tracemalloc.stop()
    assert (text.ids == ids).all() and (text.lengths[:501] == [*range(255), *[255] * 245, 0]).all()


def changed_tokens(store: Store, monkeypatch: pytest.MonkeyPatch, documents: list[int]) -> Artifact:
    """Tokens whose training documents are some of the first ones, in an order, and others of their
    own (-1).
    """
    random = np.random.default_rng(len(documents))
    whole = np.random.default_rng(0)
    first = (
        (whole.integers(0, VOCABULARY, 90) * (whole.random(90) > 0.2))
        .astype(np.uint16)
        .reshape(10, 9)
    )
    ids = [
        first[n] if n >= 0 else random.integers(0, VOCABULARY, 9).astype(np.uint16)
        for n in documents
    ]

    def given(self: SmallTokens, job: Job[TokensConfig]) -> dict[str, Any]:
        figures = run(self, job)
        layout = ArrayLayout("tokens.zarr/train/ids", (9 * len(ids),), np.uint16, 1 << 20)
        job.draft.write_whole(layout, np.concatenate(ids))
        return figures

    run = SmallTokens.run
    with monkeypatch.context() as patched:
        patched.setattr(SmallTokens, "run", given)
        return small_tokens(
            store, lengths={"train": 9 * len(ids), "valid": 40}, seed=len(documents)
        )


@pytest.mark.parametrize(
    "documents", [[*range(10), -1, -1], [-1, 0, 1, 2, 4, 9, -1, 5], [3, 2, 1], [-1] * 11, [0, 1]]
)
def test_an_index_that_grows_and_forgets_is_byte_for_byte_the_one_that_is_built_anew(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: list[int]
) -> None:
    before = built(store, small_tokens(store))
    tokens = changed_tokens(store, monkeypatch, documents)
    anew = built(store, tokens)
    changed, attempts = made_in_pieces(
        monkeypatch, lambda: built(store, tokens, update=before), logged=True
    )
    arrays = [name for name in anew.manifest.files if name.startswith("contexts.zarr")]
    assert arrays and all(
        changed.manifest.files[name] == anew.manifest.files[name] for name in arrays
    )
    assert changed.id != anew.id and changed.manifest.inputs["previous"].id == before.id
    stays = {3: 1, 8: 5}.get(len(documents), sum(number >= 0 for number in documents))
    assert changed.metrics["added"] == 9 * (len(documents) - stays)
    assert changed.metrics["forgotten"] == 9 * (10 - stays)
    assert len(attempts.begun_with) > 2


def test_a_changed_index_is_one_of_the_same_tokenizer(store: Store) -> None:
    tokens = small_tokens(store)
    before = built(store, small_tokens(store, tokenizer="other"))
    with pytest.raises(ArtifactError, match=r"another tokenizer than.*leave --update out"):
        built(store, tokens, update=before)
    assert built(store, tokens, update="none").manifest.inputs.keys() == {"text"}


def test_the_forecast_of_scratch_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [0]
    append = ProgressLog.append

    def looked(log: ProgressLog, unit: Written) -> None:
        append(log, unit)
        files = (log.path.parent / "scratch").glob("*")
        seen.append(sum(file.stat().st_size for file in files))

    monkeypatch.setattr(ProgressLog, "append", looked)
    limit(monkeypatch, contexts_per_shard=10_000, suffixes_per_shard=40_000)
    index = built(store, small_tokens(store, lengths={"train": 90_000}))
    assert (
        0.6 * scratch_bytes(90_000, 4) < max(seen) < 1.02 * scratch_bytes(90_000, 4)
        and index.metrics["rows"] == 90_000
    )
