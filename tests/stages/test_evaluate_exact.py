"""Exact matches through the stage, against contexts that are compared one by one."""

from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.index import BuildIndex
from stages.neighbors import PrecomputeNeighbors
from stages.retrieval.grammar import parse_reading
from stages.retrieval.sources.amounts import SIZE
from stages.search.config import IndexConfig, NeighborsConfig
from tests.builders.evaluations import made
from tests.builders.limits import limit
from tests.oracles.suffixes import contexts, shared
from tests.stages.slow_evaluation import evaluated, metrics
from tests.stages.small_store import array, small_model, small_tokens

TEMPERATURE, WEIGHT = 0.7, 0.3
NUMBERS = f"matches=400,temperature={TEMPERATURE},lambda={WEIGHT}"


@pytest.fixture(scope="module")
def index(store: Store, model: Artifact) -> Artifact:
    return made(store, BuildIndex(), IndexConfig(index="exact"), model.input("tokens"))


@pytest.fixture(autouse=True)
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, tokens_per_shard=16)
    monkeypatch.setattr("stages.retrieval.sources.source.CHUNK_ENTRIES", {"cpu": 2000})


def split_of(tokens: Artifact, split: str) -> tuple[np.ndarray, np.ndarray]:
    return tuple(array(tokens, "tokens.zarr", f"{split}/{name}") for name in ("ids", "doc_offsets"))


def slow_memory(
    tokens: Artifact, split: str, sources: str, exclude: str | None = None
) -> tuple[np.ndarray, list[int]]:
    """p of each target among all that shares a token with its context, nan where nothing does;
    longest matches.
    """
    (text, offsets), (ids, own) = split_of(tokens, "train"), split_of(tokens, split)
    known, asked, stream = (
        contexts(text, offsets),
        contexts(ids, own),
        contexts(ids, np.array([0, len(ids)])),
    )
    p, lengths = [], []
    for t, target in enumerate(ids):
        begin, end = (
            (own[own <= t].max(), own[own > t].min()) if exclude == "document" else (t, t + 1)
        )
        legal = [j for j in range(len(text)) if exclude is None or not begin <= j < end]
        entries = [
            (shared(asked[t], known[j]), text[j]) for j in legal if "exact" in sources.split("+")
        ]
        entries += [
            (shared(stream[t], stream[j]), ids[j]) for j in range(t) if "exact-stream" in sources
        ]
        weights = np.array(
            [np.exp(length / TEMPERATURE) if length else 0.0 for length, _ in entries]
        )
        right = np.array([value == target for _, value in entries])
        p.append((weights * right).sum() / weights.sum() if weights.sum() else np.nan)
        lengths.append(max((length for length, _ in entries), default=0))
    return np.array(p), lengths


@pytest.mark.parametrize("sources", ["exact", "exact-stream", "exact-stream+exact"])
def test_a_token_reads_what_followed_its_longest_matches(
    store: Store, model: Artifact, index: Artifact, sources: str
) -> None:
    report = evaluated(store, model, f"{sources}:{NUMBERS}")
    alone, final = (array(report, "scores.zarr", name) for name in ("logp_lm", "logp"))
    p, lengths = slow_memory(model.input("tokens"), "test", sources)
    want = np.where(
        np.isnan(p), alone, np.log((1 - WEIGHT) * np.exp(alone) + WEIGHT * np.nan_to_num(p))
    )
    np.testing.assert_allclose(final, want, atol=1e-4)
    assert max(lengths) > 2 and report.manifest.inputs.keys() == {"model", "tokens"} | (
        {"exact"} if "exact" in sources.split("+") else set()
    )
    (memory,) = metrics(report)["memories"]
    most = (
        index.metrics["rows"] if "exact" in sources.split("+") else len(lengths)
    )  # the text has no more
    assert (memory["matches"], memory["key"], memory["similarity"]) == (most, None, None)


@pytest.mark.parametrize("exclude", ["self", "document"])
def test_of_its_own_text_a_token_does_not_find_what_is_excluded(
    store: Store, model: Artifact, index: Artifact, exclude: str
) -> None:
    reading = f"exact:{NUMBERS}"
    with pytest.raises(UsageError, match="hold the answers"):
        evaluated(store, model, reading, split="train")
    report = evaluated(store, model, reading, split="train", exclude=exclude)
    p, _ = slow_memory(model.input("tokens"), "train", "exact", exclude)
    memory = array(report, "scores.zarr", "logp_memory")[:, 0]
    np.testing.assert_allclose(np.exp(memory[~np.isnan(p)]), p[~np.isnan(p)], atol=1e-4)
    assert report.config["exclude"] == exclude
    assert metrics(report)["outside_matches"] is None  # a text is not matched with itself


def test_weights_by_length_are_fitted_on_valid_and_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, min_positions_of_fit=10, errors_of_gain=-np.inf)
    model = small_model(
        store, small_tokens(store, lengths={"train": 300, "valid": 200, "test": 50}, seed=3)
    )
    index = made(store, BuildIndex(), IndexConfig(index="exact"), model.input("tokens"))
    report = evaluated(store, model, f"exact:matches=400,temperature={TEMPERATURE},lambda=length")
    alone, final, (memory,) = (
        *(array(report, "scores.zarr", name) for name in ("logp_lm", "logp")),
        array(report, "scores.zarr", "logp_memory").T,
    )
    table = report.json("weight-network.json")
    assert table["lengths"][0] == 1 and len(set(table["weights"])) > 5
    of_alone, of_memory = np.exp(alone, dtype=float), np.exp(memory, dtype=float)
    weights = (np.exp(final, dtype=float) - of_alone) / (of_memory - of_alone)
    told = of_memory != of_alone
    near = np.abs(weights[told, None] - np.array(table["weights"])).min(1)
    assert np.quantile(near, 0.9) < 1e-3 and np.ptp(weights[told]) > 0.05
    figures = metrics(report)
    assert [row["row"] for row in figures["rows"]] == ["plain", "exact (length λ)", "exact"]
    assert (
        figures["memories"][0]["policy"] == "length"
        and report.manifest.inputs["exact"].id == index.id
    )


def test_what_does_not_belong_together_is_refused(
    store: Store, model: Artifact, index: Artifact, tmp_path: Path
) -> None:
    reading = f"exact:{NUMBERS}"
    with pytest.raises(ArtifactError, match="knows no model"):
        evaluated(store, index, reading)
    with pytest.raises(ArtifactError, match="knows no model"):
        made(store, PrecomputeNeighbors(), NeighborsConfig(), index)
    other = small_tokens(store, tokenizer="other")
    foreign = made(store, BuildIndex(), IndexConfig(index="exact"), other)
    with pytest.raises(ArtifactError, match="whose tokenizer is not that of"):
        evaluated(store, model, reading, references={"index": foreign})
    with pytest.raises(UsageError, match="names a memory that no --memory reads"):
        evaluated(store, model, "none", references={"index": index})
    with pytest.raises(UsageError, match="read it with --memory exact"):
        evaluated(store, model, references={"index": index})
    with pytest.raises(UsageError, match="leave key out"):
        evaluated(store, model, f"{reading},key=hidden")
    with pytest.raises(UsageError, match="length is of exact"):
        parse_reading("long:size=9,lambda=length")
    empty = Store(tmp_path)
    with pytest.raises(ArtifactError, match="build-index"):
        evaluated(empty, small_model(empty, small_tokens(empty)), reading)


def test_a_short_past_is_left_behind(store: Store, model: Artifact) -> None:
    near, far = (evaluated(store, model, f"exact-stream:size={size},{NUMBERS}") for size in (2, 30))
    ids, _ = split_of(model.input("tokens"), "test")
    memory = np.exp(array(near, "scores.zarr", "logp_memory")[:, 0])
    assert (memory[2:] > 0).sum() <= sum(
        ids[t] in ids[max(0, t - 2) : t] for t in range(2, len(ids))
    )
    assert metrics(near)["nll"] != metrics(far)["nll"]


def test_the_size_of_the_past_is_tuned(store: Store, model: Artifact, index: Artifact) -> None:
    sizes, numbers = (1, 5, 25), f"matches=400,temperature={TEMPERATURE},lambda={WEIGHT}"
    tuned = evaluated(store, model, f"exact-stream:size=1/5/25,{numbers}")
    alone = {
        split: [
            metrics(evaluated(store, model, f"exact-stream:size={size},{numbers}", split=split))[
                "nll"
            ]
            for size in sizes
        ]
        for split in ("valid", "test")
    }
    best = int(np.argmin(alone["valid"]))
    (memory,) = metrics(tuned)["memories"]
    most = max(len(split_of(model.input("tokens"), split)[0]) for split in alone)
    assert (memory["size"], memory["matches"], memory["tuned"]) == (sizes[best], most, ["size"])
    assert metrics(tuned)["nll"] == pytest.approx(alone["test"][best], rel=1e-6)
    assert len(set(alone["valid"])) == 3
    tune = evaluated(store, model, "exact-stream:size=tune,lambda=tune,temperature=0.7")
    assert metrics(tune)["memories"][0]["size"] in (*SIZE.grid, 40)
    for refused in (
        "exact-stream:size=1/5,matches=1/2,lambda=0.1",
        "exact-stream+exact:size=1/5,lambda=0.1",
    ):
        with pytest.raises(UsageError, match="size is tuned of exact-stream alone"):
            evaluated(store, model, refused)
