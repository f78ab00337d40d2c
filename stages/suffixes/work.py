"""The work of build-index for `exact`: contexts are divided into shards that are sorted separately.

Large arrays are memory-mapped, so memory holds one shard. For a changed text, the previous index is
merged into the new one, and kept documents are not sorted again.
"""

from math import ceil
from typing import Any

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, ShardedWork, ShardJob
from stages.search.config import IndexConfig
from stages.suffixes import indexing
from stages.suffixes.indexing import GROUP, TEXT, scratch_bytes
from stages.suffixes.plan import CUT, KEEP, SORT, WRITE, ContextPart, ContextPlan
from stages.suffixes.sorting import PHASES, SortedParts, staying_documents, text_of


def _part(phase: str, number: int, contexts: range = range(0)) -> ContextPart:
    return ContextPart(f"{phase}-{number:06d}", number, contexts, phase=phase)


class ExactIndexWork(ShardedWork[IndexConfig, ContextPlan, SortedParts, ContextPart]):
    """Sorts the contexts of a split; roles: `text` (tokens), and `previous` for an index that is
    updated.
    """

    def plan(self, job: Job[IndexConfig]) -> ContextPlan:
        rows = int(job.inputs[TEXT].metrics["splits"][job.config.split]["tokens"])
        stay, to_sort = staying_documents(job)
        num_contexts = len(to_sort)
        max_contexts = indexing.CONTEXTS_PER_SHARD
        # Borders from a sample give uneven shards: 1.5 times the number keeps the largest below
        # `max_contexts`.
        unevenness = 1 if num_contexts <= max_contexts else 1.5
        num_sorts = ceil(unevenness * num_contexts / max_contexts)

        dtype = "uint64" if rows >= 2**32 else "uint32"
        order = ArrayLayout(f"{GROUP}/order", (rows,), dtype, indexing.ROWS_PER_SHARD)
        shared = ArrayLayout(f"{GROUP}/shared", (rows,), "uint8", indexing.ROWS_PER_SHARD)

        parts = []
        if stay is not None:
            parts.append(ContextPart(KEEP, phase=KEEP))
        # A single shard needs no cut.
        if num_sorts > 1:
            for number, start in enumerate(range(0, num_contexts, max_contexts)):
                stop = min(start + max_contexts, num_contexts)
                parts.append(_part(CUT, number, range(start, stop)))
        parts += [_part(SORT, number) for number in range(num_sorts)]
        parts += [_part(WRITE, number) for number in range(order.shards)]

        scratch = scratch_bytes(rows, order.dtype.itemsize)
        return ContextPlan(
            parts, order, shared, to_sort, stay, arrays=[order, shared], scratch_bytes=scratch
        )

    def open(self, job: ShardJob[IndexConfig], plan: ContextPlan) -> SortedParts:
        return SortedParts(plan, text_of(job.inputs[TEXT], str(job.config.split)), job.folder)

    def run_shard(
        self, job: ShardJob[IndexConfig], resources: SortedParts, shard: ContextPart
    ) -> ShardOutput:
        output = ShardOutput(job.folder)
        PHASES[shard.phase](job, resources, shard, output)
        return output

    def finish(self, job: Job[IndexConfig], plan: ContextPlan) -> dict[str, Any]:
        rows = plan.order.shape[0]
        size = plan.order.nbytes + plan.shared.nbytes
        documents = int(job.inputs[TEXT].metrics["splits"][job.config.split]["documents"])
        figures = {
            "rows": rows,
            "documents": documents,
            "bytes": size,
            "bytes_per_key": round(size / rows, 2),
        }
        if PREVIOUS not in job.inputs:
            return figures
        added = len(plan.sorted)
        return figures | {
            "added": added,
            "forgotten": job.inputs[PREVIOUS].metrics["rows"] - (rows - added),
        }
