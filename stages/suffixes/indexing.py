"""The index `exact`: the contexts of a text, sorted. Tokens alone are read, so that it serves all models of them.

Contexts are cut into shards by the token before, so that a shard is sorted by itself and shards follow each other in
the order. Memory holds the text, and the contexts of a shard: as many as follow one token at least.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.artifacts.schema import Expected, anything, between
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage, ShardJob, ShardPlan
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.search import EXACT
from stages.search.config import IndexConfig

if TYPE_CHECKING:
    import numpy as np

    from stages.suffixes.text import Text

TEXT = "text"
"""Role of the tokens that are sorted; see also `stages.lineage.exact`."""
GROUP = "contexts.zarr"
CONTEXTS_PER_SHARD = 1 << 22
ROWS_PER_SHARD = 1 << 19
SORTING_BYTES, TEXT_BYTES = 100, 22
"""Memory that a context takes while it is sorted, and a token of the text while this is opened; later 10."""


@dataclass(frozen=True)
class Sorting(Shard):
    """Contexts to be sorted: those of `count` tokens that follow a symbol from `low` to `high` - 1."""

    low: int = 0
    high: int = 0
    count: int = 0


@dataclass(frozen=True)
class Writing(Shard):
    """One shard of the arrays."""

    number: int = 0


@dataclass(frozen=True)
class Plan(ShardPlan["Sorting | Writing"]):
    """Contexts that are sorted together, in their order, and the arrays that they go to, both [rows]."""

    sorting: tuple[Sorting, ...]
    order: ArrayLayout
    shared: ArrayLayout
    documents: int


@dataclass(frozen=True)
class Work:
    """Everything that shards need."""

    plan: Plan
    text: "Text"


class ExactIndex(ShardedStage[IndexConfig, Plan, Work, Sorting | Writing]):
    """Sorts the contexts of a split; role: `text` (tokens)."""

    name = "build-index"
    kind = "index"
    Config = IndexConfig

    def inputs(self, config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        text = store.get(references["source"], "tokens")
        if references.get("update") not in (None, "none"):
            raise UsageError("An index of exact matches is sorted anew: leave --update out.")
        split = config.split or "train"
        splits = text.metrics["splits"]
        if not splits.get(split, {}).get("tokens"):
            has = ", ".join(name for name, one in splits.items() if one["tokens"])
            raise ArtifactError(f"{text.reference} has no text in split {split!r} to sort (it has: {has}).")
        return Inputs({TEXT: text})

    def resolve(self, config: IndexConfig, inputs: Inputs, execution: Execution) -> IndexConfig:
        given = {name: getattr(config, name) for name in VECTORS}
        other = next((name for name, value in given.items() if value != IndexConfig().model_dump()[name]), None)
        if other is not None:
            raise UsageError(f"{other} means nothing to an {EXACT!r} index: leave it out.")
        return config.model_copy(update={**dict.fromkeys(LEFT_OUT), "split": config.split or "train"})

    def plan(self, job: Job[IndexConfig]) -> Plan:
        text = text_of(job.inputs[TEXT], str(job.config.split))
        rows, wide = len(text), len(text) >= 2**32
        sorting = tuple(cut(symbol_counts(text)))
        order = ArrayLayout(f"{GROUP}/order", (rows,), "uint64" if wide else "uint32", ROWS_PER_SHARD)
        shared = ArrayLayout(f"{GROUP}/shared", (rows,), "uint8", ROWS_PER_SHARD)
        writing = [Writing(f"write-{n:06d}", phase="write", number=n) for n in range(order.shards)]
        return Plan(
            [*sorting, *writing],
            sorting,
            order,
            shared,
            int(job.inputs[TEXT].metrics["splits"][job.config.split]["documents"]),
            arrays=[order, shared],
            scratch_bytes=order.stored_bytes + shared.stored_bytes,
        )

    def open(self, job: ShardJob[IndexConfig], plan: Plan) -> Work:
        return Work(plan, text_of(job.inputs[TEXT], str(job.config.split)))

    def run_shard(self, job: ShardJob[IndexConfig], work: Work, shard: Sorting | Writing) -> ShardOutput:
        from stages.array_files import save_arrays
        from stages.suffixes.order import sort_contexts

        output, plan = ShardOutput(job.folder), work.plan
        if isinstance(shard, Writing):
            order, shared = _sorted_rows(job.folder, plan, shard.number)
            output.write(plan.order, shard.number, order)
            output.write(plan.shared, shard.number, shared)
            return output
        order, shared = sort_contexts(work.text, _places(work.text, shard))
        save_arrays(output.add(_file(shard)), order.astype(plan.order.dtype), shared)
        return output

    def finish(self, job: Job[IndexConfig], plan: Plan) -> dict[str, Any]:
        rows = plan.order.shape[0]
        size = plan.order.nbytes + plan.shared.nbytes
        return {"rows": rows, "documents": plan.documents, "bytes": size, "bytes_per_key": round(size / rows, 2)}


LEFT_OUT = ("lists", "probe", "code_bytes", "code_bits", "links", "train_keys")
VECTORS = (*LEFT_OUT, "metric", "seed")
"""Settings that mean nothing to it."""


def cut(counts: Sequence[int]) -> list[Sorting]:
    """Ranges of symbols that hold up to CONTEXTS_PER_SHARD contexts, or one symbol's, in order.

    Args:
        counts: contexts that begin with each symbol.
    """
    shards, low, held = list[Sorting](), 0, 0
    for symbol, count in enumerate([*counts, CONTEXTS_PER_SHARD + 1]):
        if held and held + count > CONTEXTS_PER_SHARD:
            shards.append(Sorting(f"sort-{len(shards):06d}", phase="sort", low=low, high=symbol, count=held))
            low, held = symbol, 0
        held += count
    return shards


def text_of(tokens: Artifact, split: str) -> "Text":
    """A split, its documents apart from each other."""
    import numpy as np

    from stages.suffixes.text import Text
    from stages.text.tokens import open_split

    opened = open_split(tokens.zarr("tokens.zarr"), split)
    ids, offsets = np.asarray(opened.ids[:]), np.asarray(opened.doc_offsets[:])
    return Text.of(ids, offsets, int(tokens.metrics["vocabulary_size"]))


def symbol_counts(text: "Text") -> list[int]:
    """How many contexts begin with each symbol."""
    import numpy as np

    return list(np.bincount(_first_symbols(text), minlength=text.vocabulary + 2).tolist())


def _first_symbols(text: "Text") -> "np.ndarray":
    """The symbol that the context of each token begins with, int64 [N]: 1 for a border, an id + 2."""
    import numpy as np

    before = np.roll(text.ids, 1).astype(np.int64)
    before += 2
    before[text.known == 0] = 1
    return before


def _places(text: "Text", shard: Sorting) -> "np.ndarray":
    import numpy as np

    symbols = _first_symbols(text)
    return np.flatnonzero((symbols >= shard.low) & (symbols < shard.high))


def _file(shard: Sorting) -> Path:
    return Path("scratch", f"{shard.key}.npy")


def _sorted_rows(folder: Path, plan: Plan, number: int) -> "tuple[np.ndarray, np.ndarray]":
    """Rows of one shard of the arrays, out of the files in which they were sorted."""
    import numpy as np

    wanted, first, parts = plan.order.rows(number), 0, []
    for shard in plan.sorting:
        low, high = max(wanted.start - first, 0), min(wanted.stop - first, shard.count)
        if low < high:
            with (folder / _file(shard)).open("rb") as file:
                parts.append([np.load(file, allow_pickle=False)[low:high] for _ in range(2)])
        first += shard.count
    order, shared = (np.concatenate(both) for both in zip(*parts, strict=True))
    return order, shared


def context_arrays(index: Artifact, name: str) -> Expected | None:
    """The arrays of `contexts.zarr`."""
    rows = index.metrics["rows"]
    if name == f"{GROUP}/order":
        return Expected((rows,), ("uint32", "uint64"), between(0, rows, "tokens of the text"))
    return Expected((rows,), ("uint8",), anything) if name == f"{GROUP}/shared" else None
