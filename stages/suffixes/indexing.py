"""The index `exact`: the sorted contexts of a text. It only depends on tokens, so all models of them can use it.

Contexts are divided into shards that are sorted separately. Large arrays are memory-mapped, so memory holds one shard.
For a changed text, the previous index is merged into the new one, and kept documents are not sorted again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
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
    import numpy as np

    from stages.suffixes.matches import SortedContexts
    from stages.suffixes.shards import Ranked, Staying, Stretches
    from stages.suffixes.text import Text
    from stages.text.tokens import TokenSplit

TEXT = "text"
"""Role of the tokens that are sorted; see also `stages.lineage.indexes`."""
GROUP = "contexts.zarr"
CONTEXTS_PER_SHARD = 1 << 20
"""Most contexts that are sorted together; shards hold two thirds of it on average, since their sizes differ."""
ROWS_PER_SHARD = 1 << 19
SORTING_BYTES = 110
"""Bytes of memory for each context while it is sorted."""
KEPT = (Path("scratch", "kept-order.bin"), Path("scratch", "kept-shared.bin"))


@dataclass(frozen=True)
class Keeping(Shard):
    """Copies the order of kept documents from the previous index."""


@dataclass(frozen=True)
class Cutting(Shard):
    """Groups contexts `start` to `stop` - 1, of those to be sorted, by the shard that will sort them."""

    start: int = 0
    stop: int = 0


@dataclass(frozen=True)
class Sorting(Shard):
    """Sorts one shard of contexts."""

    number: int = 0


@dataclass(frozen=True)
class Writing(Shard):
    """Writes one shard of the arrays."""

    number: int = 0


@dataclass(frozen=True)
class Plan(ShardPlan[Shard]):
    """The arrays, both [rows], and the work; `sorted`: tokens to sort, `stay`: documents of the previous index."""

    order: ArrayLayout
    shared: ArrayLayout
    cutting: Sequence[Cutting]
    sorting: Sequence[Sorting]
    sorted: "Stretches"
    stay: "Staying | None"


@dataclass(frozen=True)
class Work:
    """Everything that shards need."""

    plan: Plan
    text: "Text"
    folder: Path

    @cached_property
    def kept(self) -> "SortedContexts":
        """The order of the contexts of kept documents."""
        import numpy as np

        from stages.suffixes.matches import SortedContexts

        rows, dtypes = len(self.text) - len(self.plan.sorted), (self.plan.order.dtype, np.dtype(np.uint8))
        if not rows:
            return SortedContexts(self.text, *(np.zeros(0, dtype) for dtype in dtypes))
        files = [self.folder / path for path in KEPT]
        return SortedContexts(
            self.text, *(np.asarray(np.memmap(f, d, "r", shape=(rows,))) for f, d in zip(files, dtypes, strict=True))
        )

    @cached_property
    def cut(self) -> "list[tuple[np.ndarray, np.ndarray]]":
        """For every part: places grouped by shard, and the number of places for each shard."""
        from stages.array_files import map_arrays

        files = (map_arrays(self.folder / _file(part), 2) for part in self.plan.cutting)
        return [(places, counts) for places, counts in files]

    @cached_property
    def new(self) -> "list[Ranked]":
        """New contexts in order, one item for each sorted shard."""
        from stages.array_files import map_arrays
        from stages.suffixes.shards import Ranked

        return [Ranked(*map_arrays(self.folder / _file(part), 5)) for part in self.plan.sorting]


class ExactIndex(ShardedStage[IndexConfig, Plan, Work, Shard]):
    """Sorts the contexts of a split; roles: `text` (tokens), and `previous` for an index that is updated."""

    name = "build-index"
    kind = "index"
    Config = IndexConfig

    def inputs(self, config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        text = store.get(references["source"], "tokens")
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
        rows = int(job.inputs[TEXT].metrics["splits"][job.config.split]["tokens"])
        stay, held = _staying(job)
        most, count = CONTEXTS_PER_SHARD, len(held)
        # borders from a sample give uneven shards: 1.5 times the number keeps the largest below `most`
        sorts = ceil(count / most) if count <= most else ceil(1.5 * count / most)
        cutting = [
            Cutting(f"cut-{number:06d}", start, min(start + most, count), phase="cut")
            for number, start in enumerate(range(0, count if sorts > 1 else 0, most))
        ]
        sorting = [Sorting(f"sort-{number:06d}", number, phase="sort") for number in range(sorts)]
        order = ArrayLayout(f"{GROUP}/order", (rows,), "uint64" if rows >= 2**32 else "uint32", ROWS_PER_SHARD)
        shared = ArrayLayout(f"{GROUP}/shared", (rows,), "uint8", ROWS_PER_SHARD)
        keeping = [] if stay is None else [Keeping("keep", phase="keep")]
        writing = [Writing(f"write-{number:06d}", number, phase="write") for number in range(order.shards)]
        return Plan(
            [*keeping, *cutting, *sorting, *writing],
            order,
            shared,
            cutting,
            sorting,
            held,
            stay,
            arrays=[order, shared],
            scratch_bytes=scratch_bytes(rows, order.dtype.itemsize),
        )

    def open(self, job: ShardJob[IndexConfig], plan: Plan) -> Work:
        return Work(plan, text_of(job.inputs[TEXT], str(job.config.split)), job.folder)

    def run_shard(self, job: ShardJob[IndexConfig], work: Work, shard: Shard) -> ShardOutput:
        output = ShardOutput(job.folder)
        if isinstance(shard, Keeping):
            _keep(job, work.plan, output)
        elif isinstance(shard, Cutting):
            _cut(work, shard, output)
        elif isinstance(shard, Sorting):
            _sort(work, shard, output)
        elif isinstance(shard, Writing):
            _write(work, shard.number, output)
        return output

    def finish(self, job: Job[IndexConfig], plan: Plan) -> dict[str, Any]:
        rows, size = plan.order.shape[0], plan.order.nbytes + plan.shared.nbytes
        documents = int(job.inputs[TEXT].metrics["splits"][job.config.split]["documents"])
        figures = {"rows": rows, "documents": documents, "bytes": size, "bytes_per_key": round(size / rows, 2)}
        if PREVIOUS not in job.inputs:
            return figures
        added = len(plan.sorted)
        return figures | {"added": added, "forgotten": job.inputs[PREVIOUS].metrics["rows"] - (rows - added)}


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


def _staying(job: Job[IndexConfig]) -> "tuple[Staying | None, Stretches]":
    """The documents that stay from the previous index, and the tokens to sort."""
    import numpy as np

    from stages.suffixes.shards import Stretches, others, staying
    from stages.suffixes.text import opened

    rows = int(job.inputs[TEXT].metrics["splits"][job.config.split]["tokens"])
    if PREVIOUS not in job.inputs:
        return None, Stretches(np.array([0]), np.array([rows]))
    before, now = ((opened(text.ids), np.asarray(text.doc_offsets[:])) for text in _both(job))
    stay = staying(before, now)
    return stay, others(now[1], stay.now)


def _both(job: ShardJob[IndexConfig]) -> Iterator["TokenSplit"]:
    """The text of the previous index, and the new text."""
    from stages.text.tokens import open_split

    previous = job.inputs[PREVIOUS]
    for tokens, split in ((previous.input(TEXT), previous.config["split"]), (job.inputs[TEXT], job.config.split)):
        yield open_split(tokens.zarr("tokens.zarr"), str(split))


def _keep(job: ShardJob[IndexConfig], plan: Plan, output: ShardOutput) -> None:
    import numpy as np

    from stages.suffixes.shards import kept

    assert plan.stay is not None
    group = job.inputs[PREVIOUS].zarr(GROUP)
    arrays = group["order"], group["shared"]

    def blocks() -> "Iterator[tuple[np.ndarray, np.ndarray]]":
        for start in range(0, arrays[0].shape[0], ROWS_PER_SHARD):
            order, shared = (np.asarray(array[start : start + ROWS_PER_SHARD]) for array in arrays)
            yield order, shared

    offsets = [np.asarray(text.doc_offsets[:]) for text in _both(job)]
    with output.add(KEPT[0]).open("wb") as orders, output.add(KEPT[1]).open("wb") as links:
        for order, shared in kept(blocks(), plan.stay, *offsets):
            orders.write(order.astype(plan.order.dtype).tobytes())
            links.write(shared.tobytes())


def _cut(work: Work, shard: Cutting, output: ShardOutput) -> None:
    import numpy as np

    from stages.array_files import save_arrays
    from stages.suffixes.shards import borders, grouped

    plan = work.plan
    bounds = borders(work.text, plan.sorted, len(plan.sorting))
    places, counts = grouped(bounds, plan.sorted.places(np.arange(shard.start, shard.stop)))
    save_arrays(output.add(_file(shard)), places.astype(plan.order.dtype), counts)


def _sort(work: Work, shard: Sorting, output: ShardOutput) -> None:
    import numpy as np

    from stages.array_files import save_arrays
    from stages.suffixes.shards import ranked, taken
    from stages.suffixes.text import sort_contexts

    plan = work.plan
    places = taken(work.cut, shard.number) if plan.cutting else plan.sorted.places(np.arange(len(plan.sorted)))
    found = ranked(work.text, sort_contexts(work.text, places), work.kept)
    place = plan.order.dtype
    save_arrays(
        output.add(_file(shard)),
        *(found.places.astype(place), found.shared, found.rank.astype(place), found.before, found.after),
    )


def _write(work: Work, number: int, output: ShardOutput) -> None:
    from stages.suffixes.shards import merged
    from stages.suffixes.text import Order

    plan, rows = work.plan, work.plan.order.rows(number)
    order, shared = merged(work.text, rows.start, rows.stop, work.new, Order(work.kept.order, work.kept.shared))
    output.write(plan.order, number, order.astype(plan.order.dtype))
    output.write(plan.shared, number, shared)


def _file(shard: Shard) -> Path:
    return Path("scratch", f"{shard.key}.npy")


def text_of(tokens: Artifact, split: str) -> "Text":
    """The text of a split, with its document borders; large arrays are memory-mapped."""
    import numpy as np

    from stages.suffixes.text import Text
    from stages.text.tokens import open_split

    held = open_split(tokens.zarr("tokens.zarr"), split)
    return Text.of(held.ids, np.asarray(held.doc_offsets[:]), int(tokens.metrics["vocabulary_size"]))


def open_contexts(index: Artifact) -> "SortedContexts":
    """Open the sorted contexts of an index; large arrays are memory-mapped."""
    from stages.suffixes.matches import SortedContexts
    from stages.suffixes.text import opened

    group, text = index.zarr(GROUP), text_of(index.input(TEXT), str(index.config["split"]))
    return SortedContexts(text, opened(group["order"]), opened(group["shared"]))


def context_arrays(index: Artifact, name: str) -> Expected | None:
    """The expected arrays of `contexts.zarr`."""
    rows = index.metrics["rows"]
    if name == f"{GROUP}/order":
        return Expected((rows,), ("uint32", "uint64"), between(0, rows, "tokens of the text"))
    return Expected((rows,), ("uint8",), anything) if name == f"{GROUP}/shared" else None
