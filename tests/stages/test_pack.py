import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ArtifactError, DataError
from stages.pack import PackBatches, PackConfig
from stages.packing import work as pack
from stages.text.bm25 import Bm25Index
from tests.oracles.bm25 import algorithm_1, lucene_scores, matches, okapi_scores
from tests.stages.notes import Notes
from tests.stages.small_store import array, small_model, small_tokens

LENGTH, TRAIN = 8, 325
"""40 segments, and 5 tokens left out."""
ORACLES = {"lucene": (lucene_scores, 0.0), "okapi": (okapi_scores, -np.inf)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def tokens(store: Store) -> Artifact:
    return small_tokens(store, lengths={"train": TRAIN, "valid": 20})


def packed(store: Store, source: Artifact, notes: Notes | None = None, **settings: Any) -> Artifact:
    config = PackConfig(**{"segment_length": LENGTH, **settings})
    return make(
        PackBatches(),
        config,
        {"source": source.reference},
        store,
        Execution(reporter=notes or Notes()),
    ).artifact


def segments(tokens: Artifact) -> list[list[int]]:
    ids = array(tokens, "tokens.zarr", "train/ids")
    return ids[: TRAIN // LENGTH * LENGTH].reshape(-1, LENGTH).tolist()


def algorithm(
    documents: list[list[int]], variant: str, k: int, seed: int
) -> tuple[list[int], list[bool], np.ndarray]:
    """Algorithm 1 by the definition: order, whether each but the first was linked, and all scores."""
    oracle, floor = ORACLES[variant]
    scores = oracle(documents)
    permutation = np.random.default_rng(seed).permutation(len(documents)).tolist()
    return *algorithm_1(matches(scores, k, floor), permutation), scores


@pytest.mark.parametrize("variant", ORACLES)
@pytest.mark.parametrize(("k", "seed"), [(2, 0), (20, 3), (1000, 1)])
def test_packs_as_algorithm_1_does(
    store: Store, tokens: Artifact, variant: str, k: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pack.SEGMENTS, "fast", 9)
    batches = packed(store, tokens, k=k, seed=seed, bm25=variant)
    order, linked, scores = algorithm(segments(tokens), variant, k, seed)
    assert array(batches, "batches.zarr", "order").tolist() == order
    assert batches.metrics["hop_rate"] == pytest.approx(np.mean(linked))
    followed = [scores[a, b] for (a, b), link in zip(pairwise(order), linked, strict=True) if link]
    assert batches.metrics["mean_link_score"] == pytest.approx(np.mean(followed), rel=1e-6)


def test_rank_bm25_itself_packs_the_same_and_warns_where_that_takes_long(
    store: Store, tokens: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    monkeypatch.setitem(pack.SEGMENTS, "rank-bm25", 9)
    fast, slow = (
        packed(store, tokens, notes, bm25="okapi", k=3, engine=engine)
        for engine in ("fast", "rank-bm25")
    )
    assert fast.id != slow.id and not notes.warnings
    assert (array(fast, "batches.zarr", "order") == array(slow, "batches.zarr", "order")).all()
    assert slow.metrics["hop_rate"] == fast.metrics["hop_rate"]
    assert slow.metrics["mean_link_score"] == pytest.approx(
        fast.metrics["mean_link_score"], rel=1e-6
    )
    monkeypatch.setattr(pack, "MANY", 10)
    packed(store, tokens, notes, bm25="okapi", k=4, engine="rank-bm25")
    assert any("Leave --engine out" in warning for warning in notes.warnings)
    with pytest.raises(ValueError, match="add --bm25 okapi"):
        PackConfig(engine="rank-bm25")


@pytest.mark.parametrize(
    "settings", [{"k": 3}, {"k": 20, "apart": 3}, {"bm25": "okapi", "engine": "rank-bm25"}]
)
def test_links_lead_to_other_documents_where_a_segments_own_is_excluded(
    store: Store, tokens: Artifact, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents have nine tokens, segments eight, so most hold parts of two."""
    monkeypatch.setitem(pack.SEGMENTS, "fast", 9)
    batches = packed(store, tokens, exclude="document", seed=2, **settings)
    documents = segments(tokens)
    oracle, floor = ORACLES[batches.config["bm25"]]
    scores = oracle(documents)
    held = [{(8 * segment + place) // 9 for place in range(8)} for segment in range(40)]
    for own in range(40):
        scores[own, [bool(held[own] & other) for other in held]] = -np.inf
    links = matches(scores, settings.get("k", 20), floor)
    free = np.random.default_rng(2).permutation(40).tolist()
    order = [free.pop(0)]
    for _ in range(39):
        near = set().union(*(held[segment] for segment in order[1 - settings.get("apart", 16) :]))
        apart = [segment for segment in free if not held[segment] & near]
        order.append(([match for match in links[order[-1]] if match in apart] or apart or free)[0])
        free.remove(order[-1])
    assert array(batches, "batches.zarr", "order").tolist() == order
    same = [bool(held[a] & held[b]) for a, b in pairwise(order)]
    assert batches.metrics["same_document"] == pytest.approx(np.mean(same))
    assert batches.metrics["same_document"] < packed(store, tokens).metrics["same_document"]
    assert batches.config["exclude"] == "document"


def test_documents_are_excluded_where_there_are_several(store: Store) -> None:
    whole = small_tokens(store, lengths={"train": 9})
    with pytest.raises(DataError, match=r"is one document.*memlm tokenize --documents"):
        packed(store, whole, segment_length=2, exclude="document")
    with pytest.raises(ValueError, match="add --exclude document"):
        PackConfig(apart=4)


def test_only_whole_segments_of_train_take_part_and_the_rest_is_counted(
    store: Store, tokens: Artifact
) -> None:
    batches = packed(store, tokens)
    order, offsets = (array(batches, "batches.zarr", name) for name in ("order", "segment_offsets"))
    assert (order.dtype, offsets.dtype) == (np.int64, np.int64)
    assert sorted(order) == list(range(40))
    assert offsets.tolist() == list(range(0, TRAIN - 5 + 1, LENGTH))
    assert (batches.metrics["segments"], batches.metrics["tokens_left_out"]) == (40, 5)
    assert batches.config == PackConfig(segment_length=LENGTH).stored()
    assert batches.input("tokens").reference == tokens.reference


def test_states_how_alike_neighbours_are(store: Store, tokens: Artifact) -> None:
    batches = packed(store, tokens, seed=4)
    held = [set(segment) for segment in segments(tokens)]
    orders = {
        "token_overlap": array(batches, "batches.zarr", "order"),
        "token_overlap_random": np.random.default_rng(4).permutation(40),
    }
    for name, order in orders.items():
        wanted = np.mean([len(held[a] & held[b]) / len(held[a]) for a, b in pairwise(order)])
        assert batches.metrics[name] == pytest.approx(wanted)
    assert batches.metrics["token_overlap"] > batches.metrics["token_overlap_random"]
    assert batches.metrics["terms"] == len(set().union(*held))


def test_segments_that_share_nothing_are_linked_to_nothing(store: Store) -> None:
    single = small_tokens(store, lengths={"train": 2}, seed=1)
    assert len(set(array(single, "tokens.zarr", "train/ids"))) == 2
    metrics = packed(store, single, segment_length=1).metrics
    assert (metrics["hop_rate"], metrics["mean_link_score"], metrics["token_overlap"]) == (
        0,
        None,
        0,
    )


def test_an_interrupted_packing_goes_on_and_gives_the_same_bytes(
    store: Store, tokens: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pack.SEGMENTS, "fast", 9)
    whole = packed(store, tokens)
    expected = {name: entry["blake2b"] for name, entry in whole.manifest.files.items()}
    store.remove(whole.reference)
    looked_up: list[int] = []
    real = Bm25Index.search

    def dies_in_the_third(self: Bm25Index, start: int, stop: int, k: int) -> Any:
        if len(looked_up) == 2:
            raise KeyboardInterrupt
        looked_up.append(start)
        return real(self, start, stop, k)

    monkeypatch.setattr(Bm25Index, "search", dies_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        packed(store, tokens)
    looked_up.append(-1)
    notes = Notes()
    again = packed(store, tokens, notes)
    assert looked_up == [0, 9, -1, 18, 27, 36]
    assert any("2 of 5" in info for info in notes.infos)
    assert {name: entry["blake2b"] for name, entry in again.manifest.files.items()} == expected
    assert json.loads((again.path / "batches.zarr/zarr.json").read_text())["node_type"] == "group"
    assert {Path(name).parts[0] for name in again.manifest.files} == {"batches.zarr"}


def test_what_cannot_be_packed_is_refused(store: Store, tokens: Artifact) -> None:
    with pytest.raises(DataError, match="325 tokens, less than two segments of 163"):
        packed(store, tokens, segment_length=163)
    with pytest.raises(ArtifactError, match="no split 'train'"):
        packed(store, small_tokens(store, lengths={"test": 90}))
    with pytest.raises(ArtifactError, match="tokens"):
        packed(store, small_model(store, tokens))
    assert not (store.root / "batches").exists()


def test_two_segments_are_enough(store: Store, tokens: Artifact) -> None:
    batches = packed(store, tokens, segment_length=162)
    assert sorted(array(batches, "batches.zarr", "order")) == [0, 1]
    assert batches.metrics["hop_rate"] == 1
