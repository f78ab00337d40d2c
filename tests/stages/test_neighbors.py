import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.encoding.key_encoder import KeyEncoder
from stages.errors import ArtifactError, UsageError
from stages.index import BuildIndex, IndexConfig
from stages.indexing import layouts, neighbors
from stages.indexing.neighbors import NeighborsWork
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.numbers import size
from stages.search.config import forbidden_rows
from stages.search.lists import InvertedLists
from tests.builders.limits import limit
from tests.oracles.search import nearest
from tests.stages.kills import made_in_pieces
from tests.stages.notes import Notes
from tests.stages.small_store import array, small_model, small_tokens

TRAIN, VALID = 300, 70


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A datastore, in a store with an index of it: each test has a copy."""
    store = Store(tmp_path_factory.mktemp("built") / "store")
    with pytest.MonkeyPatch.context() as patched:
        limit(patched, shard_bytes=72 * 16)
        datastore = build_datastore(store)
        build_index(store, datastore)
    return datastore


@pytest.fixture
def store(built: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    limit(monkeypatch, shard_bytes=72 * 16)
    monkeypatch.setattr(layouts, "FEWEST_QUERIES", 100)
    monkeypatch.setattr(layouts, "MOST_QUERIES", 100)
    return Store(shutil.copytree(built.store.root, tmp_path / "store"))


@pytest.fixture
def datastore(store: Store, built: Artifact) -> Artifact:
    return store.get(built.reference)


def build_datastore(store: Store, **settings: Any) -> Artifact:
    model = small_model(store, small_tokens(store, lengths={"train": TRAIN, "valid": VALID}))
    references = {"source": model.reference}
    return make(
        BuildDatastore(), DatastoreConfig(**settings), references, store, Execution("cpu")
    ).artifact


def build_index(store: Store, datastore: Artifact, **settings: Any) -> Artifact:
    references = {"source": datastore.reference}
    return make(BuildIndex(), IndexConfig(**settings), references, store, Execution("cpu")).artifact


def precompute(
    store: Store,
    index: Artifact,
    notes: Notes | None = None,
    tokens: str | None = None,
    **settings: Any,
) -> Artifact:
    references = {"source": index.reference, "tokens": tokens}
    execution = Execution("cpu", reporter=notes or Notes())
    return make(
        PrecomputeNeighbors(), NeighborsConfig(**settings), references, store, execution
    ).artifact


def keys_of(datastore: Artifact) -> np.ndarray:
    return array(datastore, "datastore.zarr", "keys").astype(np.float32)


def found(artifact: Artifact, split: str) -> tuple[np.ndarray, np.ndarray]:
    return array(artifact, "neighbors.zarr", f"{split}/ids"), array(
        artifact, "neighbors.zarr", f"{split}/distances"
    )


def test_the_datastores_own_tokens_find_others_and_never_themselves(
    store: Store, datastore: Artifact
) -> None:
    artifact = precompute(store, build_index(store, datastore))
    ids, distances = found(artifact, "train")
    keys, rows = keys_of(datastore), np.arange(TRAIN)
    want_ids, want_distances = nearest(keys, keys, 4, "l2", np.stack([rows, rows + 1], axis=1))
    assert (ids.dtype, distances.dtype) == (np.int64, np.float32)
    assert not (ids == rows[:, None]).any()
    np.testing.assert_allclose(distances, want_distances, rtol=1e-4, atol=1e-5)
    assert (ids == want_ids).mean() > 0.98
    assert artifact.config["exclude"] == "self"


LSTM = {"backbone": "lstm", "vocab_size": 11, "layers": 1, "width": 8, "dropout": 0.0}
XL = {"backbone": "transformer-xl", "vocab_size": 11, "width": 8, "heads": 2, "ffn_width": 8}
XL |= {"segment_length": 8, "mem_length": 6}


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize(
    ("backbone", "read"), [(LSTM, {}), (XL, {"context": 12, "mem_length": 30})]
)
def test_queries_of_a_backbone_that_carries_state_are_those_of_one_pass(
    store: Store, fraction: float, backbone: dict[str, Any], read: dict[str, int]
) -> None:
    tokens = small_tokens(store, lengths={"train": TRAIN, "valid": 250})
    model = small_model(store, tokens, model=backbone)
    references = {"source": model.reference}
    config = DatastoreConfig(fraction=fraction, dtype="float32", **read)
    stored = make(BuildDatastore(), config, references, store, Execution("cpu")).artifact
    artifact = precompute(store, build_index(store, stored, index="flat"), k=3)
    keys = keys_of(stored)
    for split, total in (("train", TRAIN), ("valid", 250)):
        config = DatastoreConfig(split=split, dtype="float32", **read)
        queries = keys_of(
            make(BuildDatastore(), config, references, store, Execution("cpu")).artifact
        )
        rows = np.arange(total)
        own = np.stack([rows, rows + 1], axis=1) if split == "train" else None
        want_ids, want_distances = nearest(queries, keys, 3, "l2", own)
        ids, distances = found(artifact, split)
        np.testing.assert_allclose(distances, want_distances, rtol=1e-3, atol=1e-5)
        assert (ids == want_ids).mean() > 0.98


def test_other_splits_are_encoded_and_nothing_is_excluded(
    store: Store, datastore: Artifact
) -> None:
    index = build_index(store, datastore, metric="ip")
    artifact = precompute(store, index, queries=("valid",), k=3)
    reference = {"source": datastore.input("encoder").reference}
    config = DatastoreConfig(split="valid")
    queries = make(BuildDatastore(), config, reference, store, Execution("cpu")).artifact
    ids, distances = found(artifact, "valid")
    want_ids, want_distances = nearest(keys_of(queries), keys_of(datastore), 3, "ip")
    assert (ids == want_ids).mean() > 0.95
    np.testing.assert_allclose(distances, want_distances, rtol=5e-3)
    assert not (artifact.path / "neighbors.zarr" / "train").exists()
    assert artifact.config["exclude"] == "none"


@pytest.mark.parametrize("notable", [1, 1_000_000])
def test_states_rates_accuracy_and_what_is_missing(
    store: Store, datastore: Artifact, notable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.artifacts.make.NOTABLE_BYTES", notable)
    notes = Notes()
    artifact = precompute(store, build_index(store, datastore), notes)
    ids, _ = found(artifact, "train")
    values = array(datastore, "datastore.zarr", "values")
    figures = artifact.metrics["splits"]["train"]
    assert figures["top1_accuracy"] == pytest.approx((values[ids[:, 0]] == values).mean(), abs=1e-6)
    assert (figures["queries"], figures["missing"]) == (TRAIN, 0)
    assert figures["queries_per_second"] > 0
    assert list(artifact.metrics["splits"]) == ["train", "valid"]
    files = artifact.manifest.files.items()
    written = sum(
        entry["bytes"] for file, entry in files if "/ids/" in file or "/distances/" in file
    )
    said = [one for one in notes.infos if one.startswith(f"takes up to {size(written)} of disk")]
    assert len(said) == (1 if written >= notable else 0)


@pytest.mark.parametrize(
    ("exclude", "missing"), [("window:5", 0), ("document", 0), ("window:1000", 1)]
)
def test_only_allowed_rows_are_found(
    store: Store, datastore: Artifact, exclude: str, missing: float
) -> None:
    index = build_index(store, datastore, index="ivf-flat", lists=16, probe=1)
    artifact = precompute(store, index, queries=("train",), k=7, exclude=exclude)
    ids, distances = found(artifact, "train")
    tokens = datastore.input("corpus")
    ranges = forbidden_rows(exclude, 0, TRAIN, array(tokens, "tokens.zarr", "train/doc_offsets"))
    assert ranges is not None
    assert not ((ids >= ranges[:, :1]) & (ids < ranges[:, 1:])).any()
    assert artifact.metrics["splits"]["train"]["missing"] == missing == (ids < 0).mean()
    assert np.isinf(distances[ids < 0]).all()


def test_the_text_of_the_datastore_tokenized_again_does_not_find_itself(
    store: Store, datastore: Artifact
) -> None:
    index = build_index(store, datastore)
    again = small_tokens(store, lengths={"train": TRAIN, "test": 20})
    artifact = precompute(store, index, tokens=again.reference)
    assert artifact.config["exclude"] == "self"
    for mine, theirs in zip(
        found(artifact, "train"), found(precompute(store, index), "train"), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    same_text = small_tokens(store, lengths={"test": TRAIN})
    ids, _ = found(precompute(store, index, tokens=same_text.reference), "test")
    assert not (ids == np.arange(TRAIN)[:, None]).any()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"exclude": "window:280"},
            r"neighbours of 'train' .*--exclude window:280 leaves .* 4 of the 300 rows; exclude",
        ),
        (
            {"exclude": "none", "k": 700, "queries": ("valid",)},
            r"57\.1% of .*'valid' .*the datastore has 300 rows, and 700",
        ),
    ],
)
def test_it_is_said_that_most_neighbours_are_missing(
    store: Store, datastore: Artifact, settings: dict[str, Any], words: str
) -> None:
    notes = Notes()
    artifact = precompute(store, build_index(store, datastore), notes, **settings)
    scarce = [figures["missing"] > 0.5 for figures in artifact.metrics["splits"].values()]
    assert len(notes.warnings) == sum(scarce) > 0
    assert all(re.search(words, warning) for warning in notes.warnings)


def test_one_document_is_said_to_have_no_neighbours_outside(store: Store) -> None:
    tokens = small_tokens(store, lengths={"train": 9, "valid": 9})
    references = {"source": small_model(store, tokens).reference}
    stored = make(BuildDatastore(), DatastoreConfig(), references, store, Execution("cpu")).artifact
    notes = Notes()
    precompute(store, build_index(store, stored), notes, exclude="document")
    assert len(notes.warnings) == 1
    assert "100%" in notes.warnings[0]
    assert "'train': 1)" in notes.warnings[0]
    assert "memlm tokenize --documents" in notes.warnings[0]


def test_neighbours_that_are_there_need_no_warning(store: Store, datastore: Artifact) -> None:
    notes = Notes()
    precompute(store, build_index(store, datastore), notes)
    assert notes.warnings == []


def test_the_manifest_names_the_device(
    store: Store, datastore: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.models.devices.device_name", lambda name: f"what {name} stands for")
    producer = precompute(
        store, build_index(store, datastore), queries=("valid",)
    ).manifest.producer
    assert producer["device"] == "what cpu stands for"


def test_exact_distances_are_those_of_the_stored_keys(store: Store, datastore: Artifact) -> None:
    index = build_index(store, datastore, index="ivf-pq", code_bits=4, code_bytes=1)
    rough = precompute(store, index, queries=("train",))
    exact = precompute(store, index, queries=("train",), exact=True)
    keys = keys_of(datastore)
    ids, distances = found(exact, "train")
    np.testing.assert_allclose(
        distances, ((keys[:, None] - keys[ids]) ** 2).sum(-1), rtol=1e-5, atol=1e-6
    )
    assert (exact.config["exact"], exact.config["candidates"]) == (True, 64)
    assert (rough.config["exact"], rough.config["candidates"]) == (False, None)
    assert distances.mean() < ((keys[:, None] - keys[found(rough, "train")[0]]) ** 2).sum(-1).mean()


def test_an_index_of_whole_keys_is_exact_without_being_asked(
    store: Store, datastore: Artifact
) -> None:
    index = build_index(store, datastore)
    asked, silent = (
        precompute(store, index, queries=("valid",), exact=exact) for exact in (True, False)
    )
    assert asked.id == silent.id
    with pytest.raises(UsageError, match="whole keys"):
        precompute(store, index, exact=True, candidates=9)


def test_part_of_a_split_is_looked_up_for_all_of_it(store: Store) -> None:
    datastore = build_datastore(store, fraction=0.5)
    ids, _ = found(precompute(store, build_index(store, datastore), queries=("train",)), "train")
    assert ids.shape == (TRAIN, 4)
    assert ids.max() < TRAIN // 2
    assert not (ids == np.arange(TRAIN)[:, None]).any()


def test_as_few_lists_are_read_as_the_measured_recall_allows(
    store: Store, datastore: Artifact
) -> None:
    index = build_index(store, datastore, index="ivf-flat", lists=16, probe=16)
    table = index.metrics["recall_by_probe"]
    artifact = precompute(store, index, queries=("valid",), recall=0.9)
    probe = artifact.config["probe"]
    assert table[str(probe)]["4"] >= 0.9 * table["16"]["4"]
    assert probe == 1 or table[str(probe // 2)]["4"] < 0.9 * table["16"]["4"]
    assert precompute(store, index, queries=("valid",), probe=probe).id == artifact.id
    with pytest.raises(UsageError, match="probe 17 is more than the 16 lists"):
        precompute(store, index, probe=17)


@pytest.mark.parametrize(
    "settings", [{"index": "ivf-flat"}, {"index": "ivf-pq", "code_bits": 4, "code_bytes": 1}]
)
def test_an_index_larger_than_memory_finds_the_same_and_stays_on_the_disk(
    store: Store, datastore: Artifact, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = build_index(store, datastore, lists=16, probe=5, **settings)
    held, notes = found(precompute(store, index, Notes(), exclude="window:70"), "train"), Notes()
    store.remove(store.artifacts("neighbors")[0].reference)
    monkeypatch.setattr("stages.search.open.free_memory_bytes", lambda: index.metrics["bytes"])
    mapped, open_lists = list[bool](), InvertedLists.__init__

    def remembered(self: Any, ivf: Any) -> None:
        open_lists(self, ivf)
        mapped.append(self.mapped)

    monkeypatch.setattr(InvertedLists, "__init__", remembered)
    read = found(precompute(store, index, notes, exclude="window:70"), "train")
    assert mapped and all(mapped)
    assert any("from the disk" in note for note in notes.infos)
    for one, other in zip(held, read, strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_corpus_must_speak_the_encoders_vocabulary(
    store: Store, datastore: Artifact
) -> None:
    index = build_index(store, datastore)
    other = small_tokens(store, lengths={"train": 80}, seed=5)
    artifact = precompute(store, index, tokens=other.reference)
    assert found(artifact, "train")[0].shape == (80, 4)
    assert artifact.config["exclude"] == "none"
    foreign = small_tokens(store, lengths={"train": 80}, tokenizer="foreign")
    with pytest.raises(ArtifactError, match="tokenized differently"):
        precompute(store, index, tokens=foreign.reference)


def test_an_unknown_split_is_refused_with_the_nearest_name(
    store: Store, datastore: Artifact
) -> None:
    with pytest.raises(ArtifactError, match="did you mean 'valid'"):
        precompute(store, build_index(store, datastore), queries=("vaild",))


def test_an_interrupted_search_goes_on_and_gives_the_same_bytes(
    store: Store, datastore: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = build_index(store, datastore)
    whole = precompute(store, index)
    expected = whole.digest
    store.remove(whole.reference)
    searched: list[str] = []
    real = neighbors._search

    def dies_in_the_third(config: Any, work: Any, shard: Any, queries: Any) -> Any:
        if len(searched) == 2:
            searched.append("died")
            raise KeyboardInterrupt
        searched.append(shard.key)
        return real(config, work, shard, queries)

    monkeypatch.setattr(neighbors, "_search", dies_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        precompute(store, index)
    notes = Notes()
    again = precompute(store, index, notes)
    assert again.digest == expected
    assert len(searched) == len(set(searched)) == 6
    assert any("2 of 5" in info for info in notes.infos)


def test_a_kill_at_any_shard_leaves_the_state_that_the_next_run_begins_with(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four shards of a split whose first 90 tokens are stored, and two of another."""
    model = small_model(
        store, small_tokens(store, lengths={"train": TRAIN, "valid": 150}), model=XL
    )
    references, config = {"source": model.reference}, DatastoreConfig(fraction=0.3, dtype="float32")
    stored = make(BuildDatastore(), config, references, store, Execution("cpu")).artifact
    index = build_index(store, stored, index="flat")
    whole = precompute(store, index, k=3)
    store.remove(whole.reference)
    made, attempts = made_in_pieces(
        monkeypatch, lambda: precompute(store, index, k=3), logged=False
    )
    assert made.manifest.files == whole.manifest.files
    assert attempts.begun_with == list(range(4 + 2 + 1))
    assert attempts.most_states <= 1 + 3


@pytest.mark.parametrize(
    ("damaged", "read_again"),
    [
        ((0,), [(0, 90)]),
        ((1, 3), [(0, 90), (90, 96), (192, 288)]),
        ((2,), [(0, 90), (90, 96), (96, 192)]),
    ],
)
def test_shards_that_are_damaged_are_made_again_without_the_states_before_them(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    damaged: tuple[int, ...],
    read_again: list[tuple[int, int]],
) -> None:
    """The state after 90 stored tokens is read again as shards of 96 cut it."""
    model = small_model(store, small_tokens(store, lengths={"train": 400}), model=XL)
    references, config = (
        {"source": model.reference},
        DatastoreConfig(fraction=0.225, dtype="float32"),
    )
    stored = make(BuildDatastore(), config, references, store, Execution("cpu")).artifact
    index = build_index(store, stored, index="flat")
    whole = precompute(store, index, k=3)
    store.remove(whole.reference)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(NeighborsWork, "finish", interrupted)
        precompute(store, index, k=3)
    draft, read, original = store.draft_folder("neighbors", whole.id), [], KeyEncoder.state_past
    for shard in damaged:
        (draft / f"neighbors.zarr/train/distances/c/{3 * shard}/0").write_bytes(b"damaged")

    def state_past(
        self: KeyEncoder, split: str, stop: int, state: Any = None, start: int = 0
    ) -> Any:
        read.append((start, stop))
        return original(self, split, stop, state, start)

    monkeypatch.setattr(KeyEncoder, "state_past", state_past)
    assert precompute(store, index, k=3).manifest.files == whole.manifest.files
    assert read == read_again


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("k", [4, 64, 1024])
@pytest.mark.parametrize("dim", [16, 256, 1024])
def test_shards_are_large_enough_to_share_work_and_bounded(
    k: int, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    queries, rows = layouts.shard_sizes(NeighborsConfig(k=k, candidates=None), dim)
    assert queries % rows == 0
    assert 8000 <= queries <= 1 << 17
    assert queries * max(4 * dim, 12 * k) <= 128 << 20
