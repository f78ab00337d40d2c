"""The work of update-datastore: rows that stay are copied, new rows are encoded as in
build-datastore.

A shard is a range of the new datastore's rows. Memory holds only a few shards, however large the
datastore is.
"""

import time
from typing import Any

import numpy as np

from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, Shard, ShardedWork, ShardJob
from stages.encoding.stored_rows import VALUE_DTYPE
from stages.numbers import rate
from stages.updating.change import Change
from stages.updating.config import UpdateConfig
from stages.updating.plan import TABLES, UpdatePlan, plan_change, write_sources_and_names
from stages.updating.rows import ChangedRows


class UpdateWork(ShardedWork[UpdateConfig, UpdatePlan, ChangedRows, Shard]):
    """Makes a datastore from a previous one; roles: `encoder` (model), `previous` (datastore),
    `added` (tokens).
    """

    def plan(self, job: Job[UpdateConfig]) -> UpdatePlan:
        encoder = job.inputs["encoder"]
        change = Change.of(job.config, job.inputs)
        plan = plan_change(job.config, encoder, change)
        before = change.before
        num_forgotten = len(change.forgotten)
        if num_forgotten:
            num_rows = before.rows - change.kept_rows.rows
            job.reporter.info(
                f"forgetting {num_forgotten:,} of {before.documents:,} documents, {num_rows:,} rows"
            )
        if num_forgotten and plan.carries_state and job.config.reset != "document":
            job.reporter.warning(
                f"{encoder.reference} carries a state across documents, so keys behind a forgotten one "
                "still depend on it. In a datastore built with --reset document they do not."
            )
        write_sources_and_names(change.after, job.draft)
        return plan

    def open(self, job: ShardJob[UpdateConfig], plan: UpdatePlan) -> ChangedRows:
        return ChangedRows.open(job, plan)

    def run_shard(
        self, job: ShardJob[UpdateConfig], resources: ChangedRows, shard: Shard
    ) -> ShardOutput:
        started = time.perf_counter()
        output = ShardOutput(job.folder)
        plan = resources.plan
        if shard.key == TABLES:
            for layout, table in plan.tables:
                for number in range(layout.shards):
                    output.write(layout, number, table[layout.rows(number)])
            return output

        number = int(shard.key)
        layouts = plan.layouts
        rows = layouts.keys.rows(number)
        num_rows = rows.stop - rows.start
        keys = np.empty((num_rows, layouts.dim), layouts.keys.dtype)
        values = np.empty(num_rows, VALUE_DTYPE)

        # Rows that stay, then those of them whose keys change, then the added ones.
        resources.copy(rows, keys, values)
        again = resources.encode_again(rows, keys)
        resources.encode_added(number, keys, values, output)
        output.write(layouts.keys, number, keys)
        output.write(layouts.values, number, values)
        output.record |= {"again": again, "seconds": time.perf_counter() - started}
        return output

    def finish(self, job: Job[UpdateConfig], plan: UpdatePlan) -> dict[str, Any]:
        num_encoded_again = 0
        seconds = 0.0
        for shard in plan.shards:
            if shard.key != TABLES:
                record = job.draft.record(shard.key)
                num_encoded_again += record["again"]
                seconds += record["seconds"]

        rows = plan.layouts.rows
        rows_before = job.inputs[PREVIOUS].metrics["rows"]
        return {
            "rows": rows,
            "dim": plan.layouts.dim,
            "dtype": job.config.dtype,
            "key": job.config.key,
            "bytes": plan.layouts.nbytes,
            "documents": plan.documents,
            "forgotten": rows_before - plan.kept_rows.rows,
            "added": rows - plan.kept_rows.rows,
            "encoded_again": num_encoded_again,
            "rows_per_second": rate(rows, seconds),
        }
