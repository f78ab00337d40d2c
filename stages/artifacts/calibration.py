"""How long sharded work takes, by some of its shards, which are computed and thrown away. For forecasts alone."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stages.artifacts.draft import Draft
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage
from stages.config import StageConfig
from stages.reporting import Silent

Samples = Sequence[tuple[Shard, float]]
"""Shards, in order, and how many times as long as each all those take that it stands for."""


def seconds_by_samples(
    stage: ShardedStage[Any, Any, Any, Any], config: StageConfig, inputs: Inputs, execution: Execution
) -> float | None:
    """Seconds that all shards take in one process, what they share included; None where nothing stands for them."""
    with TemporaryDirectory(prefix="memlm-") as folder:
        draft = Draft(Path(folder) / "draft", {})
        try:
            job = Job(config, inputs, draft.path, replace(execution, reporter=Silent()), draft)
            return _seconds(stage, job)
        finally:
            draft.close()


def _seconds(stage: ShardedStage[Any, Any, Any, Any], job: Job[Any]) -> float | None:
    plan = stage.plan(job)
    samples = stage.samples(job, plan)
    if not samples:
        return None
    for layout in stage.arrays(job, plan):
        job.draft.create(layout)
    started = time.perf_counter()
    work = stage.open(job, plan)
    seconds = time.perf_counter() - started
    for shard, times in samples:
        started = time.perf_counter()
        job.draft.append(stage.run_shard(job, work, shard).written(shard.key))
        seconds += times * (time.perf_counter() - started)
    return seconds
