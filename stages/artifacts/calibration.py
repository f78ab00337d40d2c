"""How long sharded work takes, by some of its shards, which are computed and thrown away. For forecasts alone."""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stages.artifacts.stage import Job, ShardedStage


def seconds_by_samples(stage: "ShardedStage[Any, Any, Any, Any]", job: "Job[Any]") -> float | None:
    """Seconds that all shards take in one process, what they share included; None where nothing stands for them.

    Args:
        job: of a draft that nobody needs.
    """
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
