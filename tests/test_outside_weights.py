"""A weight of a memory that lives outside the package: one class, and one registry line."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import UsageError
from stages.index import BuildIndex
from stages.inspection.request import reported_readings
from stages.memory.readers.settings import GRID
from stages.memory.weight_network import WeightPositions
from stages.registry import Part
from stages.retrieval.reading import Reading, WeightRule
from stages.retrieval.registries import WEIGHTS
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.sources.source import Needs
from stages.retrieval.weights.composition import Weight
from stages.retrieval.weights.grid import Grid
from stages.retrieval.weights.per_context import PerContext
from stages.search.config import IndexConfig
from tests.builders.evaluations import made, slow_plain
from tests.builders.limits import limit
from tests.cli.conftest import Memlm, logs, memlm
from tests.oracles import knn_lm as oracle
from tests.stages.small_store import array, small_model, small_tokens

__all__ = ["logs", "memlm"]

LONGEST, SLOPES = 4, np.linspace(-1, 1, 41).tolist()
K, TEMPERATURE = 6, 2.0


@dataclass(frozen=True)
class MatchWeights:
    """λ = σ(base + slope · m), where m tokens before a context and before its nearest neighbour are
    the same.
    """

    base: float
    slope: float

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(**record)

    @property
    def record(self) -> Mapping[str, Any]:
        return asdict(self)

    def logits(self, inputs: Tensor) -> Tensor:
        return self.base + self.slope * inputs[:, 0].double().cpu()


class MatchLength(PerContext):
    """More weight to a memory whose nearest entry follows the same tokens; the slope is fitted."""

    needs: ClassVar[Needs] = Needs(reach=LONGEST)
    fitted: ClassVar[type[Any]] = MatchWeights
    features: ClassVar[int] = 1

    def inputs(self, block: ScoredRange, rows: Tensor | slice, retrieved: Retrieved) -> Tensor:
        tokens = block.carried.joined_tokens(block.lm)
        here = torch.arange(len(tokens) - len(block.lm), len(tokens))[rows]
        there, values = retrieved.parts[-1].ids[:, 0], self.row.sources[-1].datastore.values
        same, length = torch.ones(len(here), dtype=torch.bool), torch.zeros(len(here))
        for back in range(1, LONGEST + 1):
            inside = (here >= back) & (there >= back)
            same &= inside & (
                tokens[(here - back).clamp(min=0)] == values[(there - back).clamp(min=0)]
            )
            length += same
        return length[:, None].double()

    def fit(self, positions: WeightPositions, weight: float) -> MatchWeights:
        tried = [MatchWeights(math.log(weight / (1 - weight)), slope) for slope in SLOPES]
        return max(
            tried, key=lambda weights: float(positions.read(weights.logits(positions.inputs)).sum())
        )


class Nearest(Grid):
    """λ = 1 / (2 + d), where d is the squared distance to the nearest entry; nothing is fitted."""

    def weights(
        self, block: ScoredRange, rows: Tensor | slice, retrieved: Sequence[Retrieved]
    ) -> Sequence[Weight]:
        return [1 / (2 - retrieved[-1].scored(self.best[-1].cutoff)[0].amax(-1))]


class Distances(WeightRule):
    """Datastores whose keys are compared by squared distance."""

    def check(self, reading: Reading) -> None:
        if not reading.reads_datastore:
            raise ValueError("lambda=nearest is of a datastore")

    def check_resolved(self, reading: Reading) -> None:
        if reading.comparison.similarity != "l2":
            raise UsageError("lambda=nearest is of squared distances.")


NEAREST = Part("tests.test_outside_weights:Distances", "tests.test_outside_weights:Nearest")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry line; and weights of a few hundred tokens are read, whatever they gain."""
    monkeypatch.setitem(WEIGHTS.targets, "match", "tests.test_outside_weights:MatchLength")
    monkeypatch.setitem(WEIGHTS.targets, "nearest", NEAREST)
    limit(monkeypatch, min_positions_of_fit=10, errors_of_gain=-math.inf)


@dataclass(frozen=True)
class SlowSplit:
    """A split, token by token in float64: probabilities of model and memory, matches, and distances
    of the nearest.
    """

    model: np.ndarray
    memory: np.ndarray
    matches: np.ndarray
    nearest: np.ndarray

    @classmethod
    def of(cls, model: Artifact, datastore: Artifact, split: str) -> "SlowSplit":
        log_p, queries, ids = slow_plain(model, split)
        keys, values = (array(datastore, "datastore.zarr", name) for name in ("keys", "values"))
        memory, matches, nearest = [], [], []
        for i, target in enumerate(ids):
            rows, distances = oracle.neighbours(keys, queries[i], K, "l2")
            memory.append(
                oracle.memory_probability(distances, values[rows], target, TEMPERATURE, "l2")
            )
            nearest.append(distances[0])
            before = range(1, 1 + min(LONGEST, i, rows[0]))
            differs = (back - 1 for back in before if ids[i - back] != values[rows[0] - back])
            matches.append(next(differs, len(before)))
        return cls(np.exp(log_p), np.array(memory), np.array(matches), np.array(nearest))

    def log_p(self, weight: float, slope: float) -> np.ndarray:
        lam = 1 / (1 + np.exp(-(math.log(weight / (1 - weight)) + slope * self.matches)))
        return np.log((1 - lam) * self.model + lam * self.memory)

    def best(self, tried: Sequence[tuple[float, float]]) -> tuple[float, float]:
        return max(tried, key=lambda point: self.log_p(*point).sum())


@pytest.mark.parametrize("tokens_per_shard", [1 << 15, 32])
def test_it_is_fitted_read_and_reported_like_any_other(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens_per_shard: int
) -> None:
    limit(monkeypatch, tokens_per_shard=tokens_per_shard)
    store = Store(tmp_path / "store")
    model = small_model(
        store, small_tokens(store, lengths={"train": 900, "valid": 100, "test": 120}, seed=2)
    )
    datastore = made(store, BuildDatastore(), DatastoreConfig(), model)
    index = made(store, BuildIndex(), IndexConfig(index="flat"), datastore)
    reading = f"external:k={K},temperature={TEMPERATURE:g},lambda=match"
    ended = memlm(
        "evaluate", index.reference, "--memory", reading, "--save-token-scores", "--device", "cpu"
    )
    assert "knn-lm (match λ)" in ended.err
    report = store.get(ended.reference, "report")
    figures = json.loads((report.path / "metrics.json").read_text())

    valid, test = (SlowSplit.of(model, datastore, split) for split in ("valid", "test"))
    one_for_all, _ = valid.best([(weight, 0.0) for weight in GRID])
    _, slope = valid.best([(one_for_all, slope) for slope in SLOPES])
    want = test.log_p(one_for_all, slope)
    assert set(test.matches) > {0, 1} and 0.3 < abs(slope) < 1
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=1e-4)
    assert figures["nll"] == pytest.approx(-want.mean(), abs=1e-5)
    assert figures["rows"][2]["nll"] == pytest.approx(
        -test.log_p(one_for_all, 0.0).mean(), abs=1e-5
    )
    learned, (memory,) = figures["learned_weight"], figures["memories"]
    assert (learned["one_for_all"], learned["used"], len(learned["held_out_gains"])) == (
        one_for_all,
        True,
        5,
    )
    assert (memory["learned"], memory["policy"], memory["tuned"]) == ("lambda", "match", ["lambda"])
    assert report.json("weight-network.json") == {
        "base": math.log(one_for_all / (1 - one_for_all)),
        "slope": slope,
    }
    assert [reading.weight for reading in reported_readings(report, model)] == ["match"]


def test_weights_that_are_not_fitted_are_those_that_score(memlm: Memlm, tmp_path: Path) -> None:
    """A curve over k would have one weight for all contexts in their place."""
    store = Store(tmp_path / "store")
    model = small_model(
        store, small_tokens(store, lengths={"train": 900, "valid": 100, "test": 120}, seed=2)
    )
    datastore = made(store, BuildDatastore(), DatastoreConfig(), model)
    index = made(store, BuildIndex(), IndexConfig(index="flat"), datastore)
    reading = f"external:k={K},temperature={TEMPERATURE:g},lambda=nearest"
    figures = json.loads(
        memlm("evaluate", index.reference, "--memory", reading, "--json", "--device", "cpu").out
    )
    slow = SlowSplit.of(model, datastore, "test")
    weights = 1 / (2 + slow.nearest)
    want = -np.log((1 - weights) * slow.model + weights * slow.memory).mean()
    assert figures["metrics"]["rows"][1]["nll"] == pytest.approx(want, abs=1e-5)


def test_readings_that_a_policy_is_not_valid_for_are_refused(memlm: Memlm, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store))
    datastore = made(store, BuildDatastore(), DatastoreConfig(), model)
    index = made(store, BuildIndex(), IndexConfig(index="flat"), datastore)
    for typed, words in {
        "long:size=5,lambda=nearest": "lambda=nearest is of a datastore",
        "external:similarity=dot,lambda=nearest": "lambda=nearest is of squared distances",
    }.items():
        ended = memlm("evaluate", index.reference, "--memory", typed, "--device", "cpu")
        assert ended.code == 2 and words in " ".join(ended.err.split())


def test_what_a_policy_lacks_is_named_before_anything_is_scored() -> None:
    # Python 3.12 and later put each name into quotes.
    with pytest.raises(TypeError, match=r"'?features'?, '?fit'?, '?fitted'?, '?inputs'?"):
        type("Bare", (PerContext,), {})(None, [])


def test_a_name_that_nobody_registered_is_refused(memlm: Memlm) -> None:
    ended = memlm("evaluate", "x", "--memory", "external:lambda=mach")
    assert ended.code == 2
    assert "lambda is no number, and no policy is called 'mach'; did you mean 'match'?" in " ".join(
        ended.err.split()
    )
