"""Stage update-datastore: datastore -> datastore, with documents added and others forgotten.

Rows that stay are copied; new rows are encoded as in build-datastore. A shard is a range of the new
datastore's rows. Memory holds only a few shards, however large the datastore is.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from stages.artifacts.kinds import ADDED, PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.encoding.stored_rows import UPDATED, VALUE_DTYPE
from stages.errors import UsageError
from stages.lineage.corpus import require_same_tokenizer, require_sources, require_split
from stages.lineage.rows import DatastoreRows
from stages.lineage.sources import sources_of, tokenizer_of
from stages.models.config import model_of
from stages.models.devices import device_type, resolve_precision
from stages.numbers import rate
from stages.updating.change import Change, documents_meant, spelled_numbers
from stages.updating.config import UpdateConfig, taken_over
from stages.updating.plan import TABLES, Plan, plan_change, write_sources_and_names
from stages.updating.work import Work


class UpdateDatastore(ShardedStage[UpdateConfig, Plan, Work, Shard]):
    """Makes a datastore from a previous one; roles: `encoder` (model), `previous` (datastore),
    `added` (tokens).
    """

    name = "update-datastore"
    kind = "datastore"
    Config = UpdateConfig
    schema = UPDATED

    def inputs(self, config: UpdateConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        previous = store.get(references["source"], "datastore")
        read = {"encoder": previous.input("encoder"), PREVIOUS: previous}
        if references.get("add") is None:
            if not config.forget:
                raise UsageError(
                    "Nothing to change: name tokens to --add, documents to --forget, or both."
                )
            if config.split is not None:
                raise UsageError(
                    f"--split {config.split} belongs to tokens to add: name them with --add."
                )
            return Inputs(read)
        added, split = store.get(references["add"], "tokens"), config.split or "train"
        require_split(added, split)
        require_same_tokenizer(tokenizer_of(previous), added, read["encoder"])
        require_sources(model_of(read["encoder"]), added)
        # Exclusion hides one row of a token: with a second copy of that row, a context would find
        # itself.
        if any(source.is_split(added, split) for source in sources_of(previous)):
            raise UsageError(
                f"{previous.reference} has rows of {split!r} of {added.reference} already; to add forgotten documents "
                "again, tokenize only those: "
                + added.advise("tokenize", "--tokenizer", added.reference, "--train", "FILE")
            )
        return Inputs(read | {ADDED: added})

    def resolve(self, config: UpdateConfig, inputs: Inputs, execution: Execution) -> UpdateConfig:
        rows = DatastoreRows(inputs[PREVIOUS])
        total = len(rows.doc_offsets) - 1
        forgotten = documents_meant(config.forget, rows.named_runs, total)
        if len(forgotten) == total and ADDED not in inputs:
            raise UsageError(
                f"This would forget all of {inputs[PREVIOUS].reference}; remove it instead: "
                + inputs[PREVIOUS].advise("artifacts", "rm", inputs[PREVIOUS].reference)
            )
        return config.model_copy(
            update={
                "split": (config.split or "train") if ADDED in inputs else None,
                "forget": spelled_numbers(forgotten),
                "precision": resolve_precision(config.precision, device_type(execution.device)),
                **taken_over(config, inputs),
            }
        )

    def plan(self, job: Job[UpdateConfig]) -> Plan:
        change = Change.of(job.config, job.inputs)
        plan = plan_change(job.config, job.inputs["encoder"], change)
        before, forgotten = change.before, len(change.forgotten)
        if forgotten:
            job.reporter.info(
                f"forgetting {forgotten:,} of {before.documents:,} documents, {before.rows - change.kept.rows:,} rows"
            )
        if forgotten and plan.carries_state and job.config.reset != "document":
            job.reporter.warning(
                f"{job.inputs['encoder'].reference} carries a state across documents, so keys behind a forgotten one "
                "still depend on it. In a datastore built with --reset document they do not."
            )
        write_sources_and_names(change.after, job.draft)
        return plan

    def open(self, job: ShardJob[UpdateConfig], plan: Plan) -> Work:
        return Work.open(job, plan)

    def run_shard(self, job: ShardJob[UpdateConfig], work: Work, shard: Shard) -> ShardOutput:
        started = time.perf_counter()
        output, plan = ShardOutput(job.folder), work.plan
        if shard.key == TABLES:
            for layout, table in plan.tables:
                for number in range(layout.shards):
                    output.write(layout, number, table[layout.rows(number)])
            return output
        number, layouts = int(shard.key), plan.layouts
        rows = layouts.keys.rows(number)
        keys = np.empty((rows.stop - rows.start, layouts.dim), layouts.keys.dtype)
        values = np.empty(len(keys), VALUE_DTYPE)
        work.copy(rows, keys, values)
        again = work.encode_again(rows, keys)
        work.encode_added(number, keys, values, output)
        output.write(layouts.keys, number, keys)
        output.write(layouts.values, number, values)
        output.record |= {"again": again, "seconds": time.perf_counter() - started}
        return output

    def finish(self, job: Job[UpdateConfig], plan: Plan) -> dict[str, Any]:
        records = [job.draft.record(shard.key) for shard in plan.shards if shard.key != TABLES]
        before = job.inputs[PREVIOUS].metrics["rows"]
        return {
            "rows": plan.layouts.rows,
            "dim": plan.layouts.dim,
            "dtype": job.config.dtype,
            "key": job.config.key,
            "bytes": plan.layouts.nbytes,
            "documents": plan.documents,
            "forgotten": before - plan.kept.rows,
            "added": plan.layouts.rows - plan.kept.rows,
            "encoded_again": sum(record["again"] for record in records),
            "rows_per_second": rate(
                plan.layouts.rows, sum(record["seconds"] for record in records)
            ),
        }
