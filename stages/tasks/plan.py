"""Division of the scoring of a stream into ranges: a part of one task's test, read with the weights
after a task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Shard, ShardPlan
from stages.errors import ArtifactError
from stages.lineage.corpus import require_tune_split
from stages.tasks.config import EvaluateTasksConfig

RANGE = 512
ADAPTED_RANGE = 8
"""Examples of a shard; and of a shard with a reading that adapts for each example."""


@dataclass(frozen=True)
class TestRange(Shard):
    """Examples [start, stop) of the test of a task, given by its place in the stream, and how they
    are read.
    """

    row: int
    """Number of the reading."""
    after: int
    """Task after which they are read, counted from 1; 0: before the first."""
    task: int
    start: int
    stop: int
    choice: int | None = None
    """Number of the reading to try on the tune split; None: the chosen reading answers the test."""

    @property
    def amount(self) -> int:
        return self.stop - self.start

    @property
    def unit(self) -> str:
        return "examples"


@dataclass(frozen=True)
class StreamPlan(ShardPlan[TestRange]):
    """The stream of a model, and the parts of it to score."""

    order: tuple[str, ...]
    """Names of the tasks in the order of learning; if all were learnt at once, as tokens list them.
    """
    places: tuple[int, ...]
    """Numbers of the tasks after which the weights are scored, from 1; 0: before the first."""
    counts: tuple[int, ...]
    """Number of examples in each task's test."""
    rows: int
    """Number of readings."""
    tuned: int = 0
    """Number of examples of the first task's tune split that each tried reading answers."""

    @property
    def tests(self) -> list[TestRange]:
        """The ranges of the tests."""
        return [shard for shard in self.shards if shard.choice is None]

    def splits(self, config: EvaluateTasksConfig) -> list[str]:
        """The splits that are read: that of the tests, and the tune split if a row has several
        readings.
        """
        return sorted({config.split, *([config.tune_split] if self.tuned else [])})

    def tries(self, row: int) -> dict[int, list[str]]:
        """Keys of the ranges of the tune split for a row, by the number of the reading to try."""
        tries: dict[int, list[str]] = {}
        for shard in self.shards:
            if shard.choice is not None and shard.row == row:
                tries.setdefault(shard.choice, []).append(shard.key)
        return tries

    @classmethod
    def of(
        cls,
        order: tuple[str, ...],
        places: tuple[int, ...],
        counts: tuple[int, ...],
        ranges: tuple[int, ...],
    ) -> "StreamPlan":
        """The plan with all ranges; ranges of the same reading and weights follow each other."""
        shards = [
            TestRange(
                f"{row}-{after:02d}-{task:02d}-{start:06d}",
                row,
                after,
                task,
                start,
                min(start + size, count),
                phase=f"row {row}",
            )
            for row, size in enumerate(ranges)
            for after in places
            for task, count in enumerate(counts)
            for start in range(0, count, size)
        ]
        return cls(shards, order, places, counts, len(ranges))


def plan_stream(config: EvaluateTasksConfig, model: Artifact, tokens: Artifact) -> StreamPlan:
    """The plan of a model's stream over tokens. Raises: ArtifactError if a task has no test."""
    names: list[str] = tokens.metrics["tasks"]
    documents_of_task = dict(
        zip(names, tokens.metrics["splits"][config.split]["task_documents"], strict=True)
    )
    for name, count in documents_of_task.items():
        if not count:
            raise ArtifactError(
                f"Task {name} of {tokens.reference} has no documents in {config.split!r}."
            )
    learnt: Sequence[str] | None = model.config["order"]
    order = tuple(names if learnt is None else learnt)
    adapts = any(reading.adapts for reading in config.readings)
    whole = learnt is not None and (config.after or ("last" if adapts else "each")) == "each"
    places = tuple(range(len(order) + 1)) if whole else (len(order),)
    max_examples = max(documents_of_task.values()) if config.examples is None else config.examples
    ranges = tuple(ADAPTED_RANGE if reading.adapts else RANGE for reading in config.readings)
    plan = StreamPlan.of(
        order, places, tuple(min(documents_of_task[name], max_examples) for name in order), ranges
    )
    tried = [len(row.readings) if len(row.readings) > 1 else 0 for row in config.rows]
    if not any(tried):
        return plan
    require_tune_split(tokens, config.tune_split)
    count = tokens.metrics["splits"][config.tune_split]["task_documents"][names.index(order[0])]
    if not count:
        raise ArtifactError(
            f"Task {order[0]}, the first of {model.reference}, has no documents in {config.tune_split!r} to tune on: "
            "name another with --tune-split, or give numbers in place of tune."
        )
    count = min(count, count if config.examples is None else config.examples)
    tries = [
        TestRange(
            f"tune-{row}-{choice:03d}-{start:06d}",
            row,
            len(order),
            0,
            start,
            min(start + size, count),
            choice,
            phase=f"tune {row}",
        )
        for row, (size, choices) in enumerate(zip(ranges, tried, strict=True))
        for choice in range(choices)
        for start in range(0, count, size)
    ]
    return replace(
        plan, shards=[*(replace(shard, phase="tune") for shard in tries), *plan.shards], tuned=count
    )


def sample_documents(count: int, examples: int) -> np.ndarray:
    """Examples of a test to score, int64 [examples], ascending: drawn from `count` with seed 0."""
    if examples == count:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[:examples])


def matrices(plan: StreamPlan, correct: Mapping[str, Any]) -> np.ndarray:
    """R of each reading, [rows, places, K tasks]: the share of right answers, from the counts of
    each shard.
    """
    return _summed(plan, correct) / np.array(plan.counts)


def _summed(plan: StreamPlan, figures: Mapping[str, float]) -> np.ndarray:
    """Sums of a figure of each shard over each test, [rows, places, K]."""
    sums = np.zeros((plan.rows, len(plan.places), len(plan.order)))
    for shard in plan.tests:
        sums[shard.row, plan.places.index(shard.after), shard.task] += figures[shard.key]
    return sums


def perplexities(
    plan: StreamPlan, nats: Mapping[str, float], tokens: Mapping[str, int]
) -> np.ndarray:
    """R of a language model, [1, places, K]: perplexity of each test, from the sums of each shard.

    Raises: ArtifactError if a perplexity overflows.
    """
    mean = _summed(plan, nats) / _summed(plan, tokens)
    with np.errstate(over="ignore"):
        values: np.ndarray = np.exp(mean)
    if not np.isfinite(values).all():
        raise ArtifactError(
            f"A test has {mean.max():,.0f} nats a token, too many for a perplexity: train again."
        )
    return values
