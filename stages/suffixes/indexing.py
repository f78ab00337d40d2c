"""The index `exact`: the sorted contexts of a text. It only depends on tokens, so all models of
them can use it.

Contexts are divided into shards that are sorted separately. Large arrays are memory-mapped, so
memory holds one shard. For a changed text, the previous index is merged into the new one, and kept
documents are not sorted again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.schema import Expected, anything, between
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage, ShardJob, ShardPlan
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.search import EXACT
from stages.search.config import IndexConfig
from stages.suffixes import AT_ONCE, IN_MEMORY

if TYPE_CHECKING:
    from stages.suffixes.shards import Staying, Stretches
    from stages.suffixes.sorting import Work

TEXT = "text"
"""Role of the tokens that are sorted; see also `stages.lineage.indexes`."""
GROUP = "contexts.zarr"
CONTEXTS_PER_SHARD = 1 << 20
"""Most contexts that are sorted together; shards hold two thirds of it on average, since their
sizes differ.
"""
ROWS_PER_SHARD = 1 << 19
SORTING_BYTES = 110
"""Bytes of memory for each context while it is sorted."""
KEEP, CUT, SORT, WRITE = "keep", "cut", "sort", "write"
"""Phases: copy the order of kept documents, group the other contexts by shard, sort each shard, and
write the arrays.

Kept documents are those of the previous index, and small texts are not cut.
"""


@dataclass(frozen=True)
class Part(Shard):
    """One of a phase's parts, by `number`; CUT groups `contexts`, of those to be sorted."""

    number: int = 0
    contexts: range = range(0)


@dataclass(frozen=True)
class Plan(ShardPlan[Part]):
    """The arrays, both [rows], and the work; `sorted`: tokens to sort, `stay`: documents of the
    previous index.
    """

    order: ArrayLayout
    shared: ArrayLayout
    sorted: "Stretches"
    stay: "Staying | None"

    def parts(self, phase: str) -> list[Part]:
        return [part for part in self.shards if part.phase == phase]


class ExactIndex(ShardedStage[IndexConfig, Plan, "Work", Part]):
    """Sorts the contexts of a split; roles: `text` (tokens), and `previous` for an index that is
    updated.
    """

    name = "build-index"
    kind = "index"
    Config = IndexConfig

    def inputs(self, config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        text = store.get(references["source"], "tokens")
        split = config.split or "train"
        splits = text.metrics["splits"]
        if not splits.get(split, {}).get("tokens"):
            has = ", ".join(name for name, one in splits.items() if one["tokens"])
            raise ArtifactError(
                f"{text.reference} has no text in split {split!r} to sort (it has: {has})."
            )
        return Inputs({TEXT: text})

    def resolve(self, config: IndexConfig, inputs: Inputs, execution: Execution) -> IndexConfig:
        given = {name: getattr(config, name) for name in VECTORS}
        other = next(
            (name for name, value in given.items() if value != IndexConfig().model_dump()[name]),
            None,
        )
        if other is not None:
            raise UsageError(f"{other} means nothing to an {EXACT!r} index: leave it out.")
        return config.model_copy(
            update={**dict.fromkeys(LEFT_OUT), "split": config.split or "train"}
        )

    def plan(self, job: Job[IndexConfig]) -> Plan:
        from stages.suffixes.sorting import staying_documents

        rows = int(job.inputs[TEXT].metrics["splits"][job.config.split]["tokens"])
        stay, held = staying_documents(job)
        most, count = CONTEXTS_PER_SHARD, len(held)
        # borders from a sample give uneven shards: 1.5 times the number keeps the largest below
        # `most`
        sorts = ceil(count / most) if count <= most else ceil(1.5 * count / most)
        cuts = [
            range(start, min(start + most, count))
            for start in range(0, count if sorts > 1 else 0, most)
        ]
        order = ArrayLayout(
            f"{GROUP}/order", (rows,), "uint64" if rows >= 2**32 else "uint32", ROWS_PER_SHARD
        )
        shared = ArrayLayout(f"{GROUP}/shared", (rows,), "uint8", ROWS_PER_SHARD)
        parts = [
            *([] if stay is None else [Part(KEEP, phase=KEEP)]),
            *(
                Part(f"{CUT}-{number:06d}", number, some, phase=CUT)
                for number, some in enumerate(cuts)
            ),
            *(Part(f"{SORT}-{number:06d}", number, phase=SORT) for number in range(sorts)),
            *(Part(f"{WRITE}-{number:06d}", number, phase=WRITE) for number in range(order.shards)),
        ]
        scratch = scratch_bytes(rows, order.dtype.itemsize)
        return Plan(parts, order, shared, held, stay, arrays=[order, shared], scratch_bytes=scratch)

    def open(self, job: ShardJob[IndexConfig], plan: Plan) -> "Work":
        from stages.suffixes.sorting import Work, text_of

        return Work(plan, text_of(job.inputs[TEXT], str(job.config.split)), job.folder)

    def run_shard(self, job: ShardJob[IndexConfig], work: "Work", shard: Part) -> ShardOutput:
        from stages.suffixes.sorting import PHASES

        output = ShardOutput(job.folder)
        PHASES[shard.phase](job, work, shard, output)
        return output

    def finish(self, job: Job[IndexConfig], plan: Plan) -> dict[str, Any]:
        rows, size = plan.order.shape[0], plan.order.nbytes + plan.shared.nbytes
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


LEFT_OUT = ("lists", "probe", "code_bytes", "code_bits", "links", "train_keys")
VECTORS = (*LEFT_OUT, "metric", "seed", "keep", "recall")
"""Settings of other kinds, which an exact index refuses."""


def opened_bytes(tokens: int) -> int:
    """Most bytes of memory that an opened index of `tokens` tokens takes, without mapped arrays."""
    arrays = [4, 1, 8 if tokens >= 2**32 else 4, 1]
    return sum(min(size * tokens, IN_MEMORY) for size in arrays) + 32 * min(tokens, AT_ONCE)


def scratch_bytes(rows: int, place: int) -> int:
    """Most bytes of scratch files; `place`: bytes of a place in the text."""
    return rows * (3 * place + 3)


def context_arrays(index: Artifact, name: str) -> Expected | None:
    """The expected arrays of `contexts.zarr`."""
    rows = index.metrics["rows"]
    if name == f"{GROUP}/order":
        return Expected((rows,), ("uint32", "uint64"), between(0, rows, "tokens of the text"))
    return Expected((rows,), ("uint8",), anything) if name == f"{GROUP}/shared" else None
