"""Runs the shards of a stage on an executor, committing what they wrote."""

from collections.abc import Iterable
from contextlib import closing
from itertools import groupby
from operator import attrgetter
from typing import Any

from stages.artifacts import EXECUTORS
from stages.artifacts.executors.executor import Executor
from stages.artifacts.executors.worker import ShardTask
from stages.artifacts.progress import Written
from stages.artifacts.stage import Job, Shard, ShardedStage
from stages.numbers import size


def run_sharded(stage: ShardedStage[Any, Any, Any, Any], job: Job[Any]) -> dict[str, Any]:
    """Do the work of a stage in its draft, going on from what is committed there; returns the metrics."""
    with job.draft.first_look():
        plan = stage.plan(job)
    for layout in plan.arrays:
        job.draft.create(layout)
    if plan.bytes:
        job.reporter.info(f"takes up to {size(plan.bytes)} of disk while it works, in {job.folder.parent}")
        job.draft.expect(plan.bytes)
    run_shards(stage, job, plan)
    metrics: dict[str, Any] = stage.finish(job, plan)
    return metrics


def run_shards(stage: ShardedStage[Any, Any, Any, Any], job: Job[Any], plan: Any) -> None:
    """Compute and commit all shards that are not committed yet, phase after phase.

    Raises: what a shard raised; the same call goes on behind what is committed.
    """
    draft, reporter = job.draft, job.reporter
    shards = plan.shards
    waiting = [shard for shard in shards if not draft.done(shard.key)]
    done = len(shards) - len(waiting)
    if draft.resumed:
        reporter.info(f"resumed: {done} of {len(shards)} shards")
    if waiting:
        reporter.progress(done, len(shards), "shards")

    def commit(written: Written) -> None:
        nonlocal done
        draft.append(written)
        done += 1
        reporter.progress(done, len(shards), "shards")

    draft.flush()
    task = ShardTask(stage, job.for_shards(), plan)
    executor: Executor = EXECUTORS.load(job.execution.executor)(task, commit, reporter)
    with closing(executor):
        for _, phase in groupby(waiting, attrgetter("phase")):
            together = list(phase)
            if together[0].title is not None:
                reporter.info(together[0].title)
            executor.run(chains_of(together))


def chains_of(shards: Iterable[Shard]) -> list[list[Shard]]:
    """Shards that belong together, in order, each chain where its first shard stands."""
    chains: dict[str, list[Shard]] = {}
    for shard in shards:
        chains.setdefault(f"shard {shard.key}" if shard.chain is None else f"chain {shard.chain}", []).append(shard)
    return list(chains.values())
