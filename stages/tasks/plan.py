"""How the scoring of a stream is cut: ranges of the test of one task, read with the weights after another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Shard, ShardPlan
from stages.errors import ArtifactError
from stages.tasks.config import EvaluateTasksConfig

RANGE, ADAPTED_RANGE = 512, 8
"""Examples of a shard; of one whose reading learns anew for each."""


@dataclass(frozen=True)
class TestRange(Shard):
    """Examples [start, stop) of the test of a task, as a place in the stream, and how they are read."""

    row: int
    """Number of the reading."""
    after: int
    """Task after which they are read, counted from 1; 0: before the first."""
    task: int
    start: int
    stop: int


@dataclass(frozen=True)
class StreamPlan(ShardPlan[TestRange]):
    """The stream of a model, and what is scored of it."""

    order: tuple[str, ...]
    """Names of the tasks, as they were learnt; of a model that learnt all at once, as the tokens have them."""
    places: tuple[int, ...]
    """Tasks after which weights are scored, counted from 1; 0: before the first."""
    counts: tuple[int, ...]
    """Examples of each task's test."""
    rows: int
    """Readings."""

    @classmethod
    def of(
        cls, order: tuple[str, ...], places: tuple[int, ...], counts: tuple[int, ...], ranges: tuple[int, ...]
    ) -> "StreamPlan":
        """All ranges; those of the same reading and weights follow each other."""
        shards = [
            TestRange(f"{row}-{after:02d}-{task:02d}-{start:06d}", row, after, task, start, min(start + size, count))
            for row, size in enumerate(ranges)
            for after in places
            for task, count in enumerate(counts)
            for start in range(0, count, size)
        ]
        return cls(shards, order, places, counts, len(ranges))


def plan_stream(config: EvaluateTasksConfig, model: Artifact, tokens: Artifact) -> StreamPlan:
    """The stream of a model over tokens. Raises: ArtifactError where a task has no test."""
    names: list[str] = tokens.metrics["tasks"]
    held = dict(zip(names, tokens.metrics["splits"][config.split]["task_documents"], strict=True))
    for name, count in held.items():
        if not count:
            raise ArtifactError(f"Task {name} of {tokens.reference} has no documents in {config.split!r}.")
    learnt: Sequence[str] | None = model.config["order"]
    order = tuple(names if learnt is None else learnt)
    adapts = any(reading.adapts for reading in config.readings)
    whole = learnt is not None and (config.after or ("last" if adapts else "each")) == "each"
    places = tuple(range(len(order) + 1)) if whole else (len(order),)
    most = max(held.values()) if config.examples is None else config.examples
    ranges = tuple(ADAPTED_RANGE if reading.adapts else RANGE for reading in config.readings)
    return StreamPlan.of(order, places, tuple(min(held[name], most) for name in order), ranges)


def drawn(count: int, examples: int) -> np.ndarray:
    """Examples of a test that are scored, int64 [examples], of `count`: drawn with the seed 0, in order."""
    if examples == count:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[:examples])


def matrices(plan: StreamPlan, correct: Mapping[str, Any]) -> np.ndarray:
    """R of each reading, [rows, places, K]: the share of right answers, from those counted by shard."""
    scores = np.zeros((plan.rows, len(plan.places), len(plan.order)))
    for shard in plan.shards:
        scores[shard.row, plan.places.index(shard.after), shard.task] += correct[shard.key]
    return scores / np.array(plan.counts)


def perplexities(plan: StreamPlan, nats: Mapping[str, float], tokens: Mapping[str, int]) -> np.ndarray:
    """R of a model of text, [1, places, K]: exp of the mean -log p of a test's tokens, from the sums of each shard."""
    sums = np.zeros((2, plan.rows, len(plan.places), len(plan.order)))
    for shard in plan.shards:
        sums[:, shard.row, plan.places.index(shard.after), shard.task] += nats[shard.key], tokens[shard.key]
    found: np.ndarray = np.exp(sums[0] / sums[1])
    return found
