"""Stage precompute-neighbors: index -> neighbors.

Searches the index with the key of every token of every split. A shard is a range of tokens of one
split.
Its queries share the matrix products of a search, and their neighbours are written as whole Zarr
shards.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.artifacts.schema import Count, Expected, Figures, Schema, Share, between, numbers
from stages.artifacts.stage import Execution, Inputs, Job, ShardedStage, ShardJob, ShardPlan
from stages.artifacts.store import Store
from stages.encoding.window_settings import TokenRange
from stages.examples.cutting import WindowSettings
from stages.lineage.corpus import corpus_of, require_split
from stages.lineage.indexes import require_all, require_vectors
from stages.lineage.sources import own_splits
from stages.models.config import model_of
from stages.models.devices import device_type, resolve_device, resolve_precision
from stages.numbers import percent, rate
from stages.search.config import NeighborsConfig, exactness, excluding_fewer, lists_to_read
from stages.text.tokens import open_split

if TYPE_CHECKING:
    import numpy as np

    from stages.encoding.carried_state import StateStore
    from stages.encoding.key_encoder import KeyEncoder
    from stages.lineage.runs import OwnRows
    from stages.search.keys import StoredKeys
    from stages.search.searcher import Searcher
    from stages.text.tokens import TokenSplit

__all__ = ["NeighborsConfig", "PrecomputeNeighbors"]

ROW_BYTES = 8 + 4
"""An id and a distance."""
QUERY_BYTES = 64 << 20
"""Bytes of the float32 queries of one shard; with more queries, more of them share the reading of a
list.
"""
FOUND_BYTES = 128 << 20
"""Bytes of the candidates of one shard's queries."""
FEWEST_QUERIES = 8192
MOST_QUERIES = 1 << 16
MOST_MISSING = 0.5
"""Share of missing neighbours in a split beyond which the user is warned."""


@dataclass(frozen=True)
class QueryRange(TokenRange):
    """A range of tokens of a split that are searched together."""

    split: str


class QueriesFigures(Figures):
    """Metrics of the neighbours of one split."""

    missing: Share
    queries: Count


class NeighborsFigures(Figures):
    """Metrics of neighbours."""

    splits: dict[str, QueriesFigures]


def neighbor_arrays(artifact: Artifact, name: str) -> Expected | None:
    """The arrays of `neighbors.zarr/SPLIT`."""
    _, split, array = (*name.split("/", 2), "", "")[:3]
    recorded = artifact.input("queries").metrics["splits"].get(split)
    if recorded is None:
        return None
    shape = recorded["tokens"], artifact.config["k"]
    return {
        "ids": Expected(
            shape, ("int64",), partial(_no_neighbors, artifact.find("datastore").metrics["rows"])
        ),
        "distances": Expected(shape, ("float32",), numbers),
    }.get(array)


def _no_neighbors(rows_found: int, values: "np.ndarray", start: int, rows: int) -> str | None:
    """Check ids: rows of the datastore, or -1 for missing neighbours, after all others. None: they
    are right.
    """
    import numpy as np

    # -1 is the largest unsigned number, so one pass suffices if nothing is missing or wrong
    if not values.size or values.view(np.uint64).max() < rows_found:
        return None
    wrong = between(-1, rows_found, "rows of the datastore, and -1,")(values, start, rows)
    after_missing = (values[:, :-1] < 0) & (values[:, 1:] >= 0)
    if wrong is None and after_missing.any():
        return f"row {start + int(np.flatnonzero(after_missing.any(-1))[0])} has neighbours behind one that is missing"
    return wrong


@dataclass(frozen=True)
class SplitPlan:
    """One split whose tokens are looked up."""

    tokens: int
    own: "OwnRows | None"
    """Its rows in the datastore; None: it has none."""
    neighbors: ArrayLayout
    distances: ArrayLayout

    @property
    def stored(self) -> tuple[int, int]:
        """Number of leading tokens whose keys are in consecutive rows of the datastore, and the
        first of these rows.
        """
        return (0, 0) if self.own is None else self.own.stored


@dataclass(frozen=True)
class Plan(ShardPlan[QueryRange]):
    """The splits that are looked up."""

    splits: dict[str, SplitPlan]

    def of_split(self, split: str) -> list[QueryRange]:
        """All tokens of a split, in order."""
        return [shard for shard in self.shards if shard.split == split]

    def encoded_before(self, shard: QueryRange) -> Iterator[TokenRange]:
        """The ranges that an encoder reads before it encodes a shard, the last range first.

        The range with stored keys, at the start of the split, is read for the state that it leaves.
        """
        stored, _ = self.splits[shard.split].stored
        for earlier in reversed(
            [one for one in self.of_split(shard.split) if one.stop <= shard.start]
        ):
            if earlier.stop <= stored:
                break
            yield replace(earlier, start=max(stored, earlier.start))
        if stored:
            yield TokenRange(f"{shard.split}-stored", 0, stored)


@dataclass(frozen=True)
class Work:
    """Everything that computing shards needs."""

    plan: Plan
    searcher: "Searcher"
    keys: "StoredKeys"
    values: Any
    encoder: "Callable[[], KeyEncoder]"
    """Encodes tokens whose keys are not stored; the first call loads the model."""
    states: "StateStore"
    tokens: "dict[str, TokenSplit]"
    """The splits that are looked up."""


class PrecomputeNeighbors(ShardedStage[NeighborsConfig, Plan, Work, QueryRange]):
    """Looks up every token's context in an index; roles: `index`, `queries` (tokens)."""

    name = "precompute-neighbors"
    kind = "neighbors"
    Config = NeighborsConfig
    schema = Schema(NeighborsFigures, neighbor_arrays)

    def inputs(
        self, config: NeighborsConfig, references: Mapping[str, Any], store: Store
    ) -> Inputs:
        index = require_all(
            require_vectors(store.get(references["source"], "index")), "a search for neighbours"
        )
        tokens = corpus_of(index.find("encoder"), references, store)
        for split in config.queries or ():
            require_split(tokens, split)
        return Inputs({"index": index, "queries": tokens})

    def resolve(
        self, config: NeighborsConfig, inputs: Inputs, execution: Execution
    ) -> NeighborsConfig:
        index = inputs["index"]
        splits = tuple(dict.fromkeys(config.queries or inputs["queries"].metrics["splits"]))
        own = own_splits(index.input("datastore"), inputs["queries"])
        exclude = "self" if config.exclude == "auto" else config.exclude
        changes = {
            "queries": splits,
            "exclude": "none" if own.isdisjoint(splits) else exclude,
            "probe": lists_to_read(config, index.config, index.metrics),
            "precision": resolve_precision(config.precision, device_type(execution.device)),
            **exactness(config, index.metrics["lossless"]),
        }
        return config.model_copy(update=changes)

    def plan(self, job: Job[NeighborsConfig]) -> Plan:
        from stages.lineage.rows import own_rows
        from stages.search.open import tell_of_large

        config, datastore = job.config, job.inputs["index"].input("datastore")
        carries = model_of(datastore.input("encoder")).carries_state
        at_once, rows = _shard_sizes(config, datastore.metrics["dim"])
        own = own_rows(datastore, job.inputs["queries"])
        splits = {
            split: _plan_split(job, split, own.get(split), rows) for split in config.queries or ()
        }
        tell_of_large(job.inputs["index"].file("index.faiss"), job.reporter)
        shards = [
            shard
            for split, one in splits.items()
            for shard in _query_ranges(split, one, at_once, carries)
        ]
        layouts = [
            layout for split in splits.values() for layout in (split.neighbors, split.distances)
        ]
        return Plan(shards, splits, arrays=layouts)

    def open(self, job: ShardJob[NeighborsConfig], plan: Plan) -> Work:
        from stages.encoding.carried_state import StateStore
        from stages.encoding.encode import SplitReader
        from stages.encoding.key_encoder import KeyEncoder
        from stages.examples.examples import Corpus
        from stages.lineage.rows import DatastoreRows, stored_keys
        from stages.machine import return_large_blocks
        from stages.search.open import open_searcher

        return_large_blocks()
        config, index, tokens = job.config, job.inputs["index"], job.inputs["queries"]
        datastore = index.input("datastore")
        keys = stored_keys(datastore)
        settings, group = {**index.config, "probe": config.probe}, tokens.zarr("tokens.zarr")
        device, windows = resolve_device(job.execution.device), WindowSettings.of(datastore.config)
        reader = SplitReader(Corpus.of(tokens, group), windows, False, device, config.precision)
        return Work(
            plan=plan,
            searcher=open_searcher(
                index.file("index.faiss"), settings, (keys.rows, keys.dim), job.execution.device
            ),
            keys=keys,
            values=DatastoreRows(datastore).text.ids,
            encoder=cache(partial(KeyEncoder.of, datastore, reader)),
            states=StateStore(job.folder, device),
            tokens={split: open_split(group, split) for split in plan.splits},
        )

    def run_shard(
        self, job: ShardJob[NeighborsConfig], work: Work, shard: QueryRange
    ) -> ShardOutput:
        import numpy as np

        from stages.search.keys import take_values

        started = time.perf_counter()
        output, split = ShardOutput(job.folder), work.plan.splits[shard.split]
        queries = _queries(work, shard, output)
        ids, distances = _search(job.config, work, shard, queries)
        for first in range(shard.start, shard.stop, split.neighbors.rows_per_shard):
            number = first // split.neighbors.rows_per_shard
            block = slice(first - shard.start, first - shard.start + split.neighbors.rows_per_shard)
            output.write(split.neighbors, number, ids[block])
            output.write(split.distances, number, distances[block])
        found = np.flatnonzero(ids[:, 0] >= 0)
        # the nearest rows are in any shard; sorted by shard, each shard is read once
        nearest = take_values(work.values, ids[found, 0])
        hits = nearest == np.asarray(work.tokens[shard.split].ids[shard.start : shard.stop])[found]
        output.record |= {
            "hits": int(hits.sum()),
            "missing": int((ids < 0).sum()),
            "seconds": time.perf_counter() - started,
        }
        return output

    def finish(self, job: Job[NeighborsConfig], plan: Plan) -> dict[str, Any]:
        records = {
            name: [job.draft.record(shard.key) for shard in plan.of_split(name)]
            for name in plan.splits
        }
        splits = {
            name: _figures(split.tokens, job.config.k, records[name])
            for name, split in plan.splits.items()
        }
        for name, figures in splits.items():
            if figures["missing"] > MOST_MISSING:
                job.reporter.warning(_scarcity(job, name, plan.splits[name], figures["missing"]))
        return {"k": job.config.k, "metric": job.inputs["index"].config["metric"], "splits": splits}


def _shard_sizes(config: NeighborsConfig, dim: int) -> tuple[int, int]:
    """Queries of a shard, and rows of a Zarr shard, which divide them; both depend on settings
    alone.
    """
    found = max(config.k, int(config.candidates or 0)) * ROW_BYTES
    fitting = min(QUERY_BYTES // (4 * dim), FOUND_BYTES // found, MOST_QUERIES)
    queries = max(FEWEST_QUERIES, fitting)
    # a shard of work is a number of whole Zarr shards, so that no two writers share a file
    rows = min(rows_per_shard(config.k * ROW_BYTES), queries)
    return queries // rows * rows, rows


def _plan_split(
    job: Job[NeighborsConfig], split: str, own: "OwnRows | None", rows: int
) -> SplitPlan:
    tokens = int(job.inputs["queries"].metrics["splits"][split]["tokens"])
    return SplitPlan(tokens, own, *_layouts(split, tokens, job.config.k, rows))


def _query_ranges(
    name: str, split: SplitPlan, at_once: int, carries_state: bool
) -> Iterator[QueryRange]:
    """Ranges of all tokens of a split; an encoder with a carried state continues from the range
    before.
    """
    for number, start in enumerate(range(0, split.tokens, at_once)):
        stop = min(start + at_once, split.tokens)
        chain = name if carries_state and stop > split.stored[0] else None
        yield QueryRange(f"{name}-{number:06d}", start, stop, name, chain=chain)


def query_layouts(
    config: NeighborsConfig, dim: int, tokens: Mapping[str, int]
) -> list[ArrayLayout]:
    """Layouts of the arrays of all splits; `tokens`: tokens of each split, `dim`: width of a query."""
    _, rows = _shard_sizes(config, dim)
    return [
        layout
        for split, count in tokens.items()
        for layout in _layouts(split, count, config.k, rows)
    ]


def _layouts(split: str, tokens: int, k: int, rows: int) -> tuple[ArrayLayout, ArrayLayout]:
    """Ids and distances of a split's neighbours."""
    return (
        ArrayLayout(f"neighbors.zarr/{split}/ids", (tokens, k), "int64", rows),
        ArrayLayout(f"neighbors.zarr/{split}/distances", (tokens, k), "float32", rows),
    )


def _search(
    config: NeighborsConfig, work: Work, shard: QueryRange, queries: "np.ndarray"
) -> "tuple[np.ndarray, np.ndarray]":
    """Ids [n, k] and distances [n, k] of the neighbours of a shard's tokens."""
    from stages.search.distances import search_with_candidates

    own = work.plan.splits[shard.split].own
    forbidden = None if own is None else own.forbidden(config.exclude, shard.start, shard.stop)
    candidates = None if config.candidates is None else int(config.candidates)
    return search_with_candidates(
        work.searcher, work.keys, queries, config.k, candidates, forbidden
    )


def _queries(work: Work, shard: QueryRange, output: ShardOutput) -> "np.ndarray":
    """Query keys [n, d] float32: stored keys are read, and others are encoded."""
    import numpy as np

    from stages.encoding.key_encoder import search_keys

    stored, first = work.plan.splits[shard.split].stored
    # keys of the datastore's own tokens are stored, so only later tokens are encoded
    between = min(max(stored, shard.start), shard.stop)
    out = np.empty((shard.stop - shard.start, work.keys.dim), np.float32)
    if between > shard.start:
        out[: between - shard.start] = work.keys.rows_between(first + shard.start, first + between)
    if between < shard.stop:
        tokens, earlier = replace(shard, start=between), work.plan.encoded_before(shard)
        encoded = work.encoder().encode_shard(shard.split, tokens, earlier, work.states, output)
        out[between - shard.start :] = search_keys(encoded.keys)
    return out


def _figures(tokens: int, k: int, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seconds = sum(record["seconds"] for record in records)
    return {
        "queries": tokens,
        "queries_per_second": rate(tokens, seconds),
        "top1_accuracy": round(sum(record["hits"] for record in records) / tokens, 6),
        "missing": round(sum(record["missing"] for record in records) / (tokens * k), 6),
    }


def _scarcity(job: Job[NeighborsConfig], name: str, split: SplitPlan, missing: float) -> str:
    """Warning for a split with most of its neighbours missing: the share, the reason, and advice."""
    k, exclude = job.config.k, job.config.exclude
    rows = job.inputs["index"].input("datastore").metrics["rows"]
    finding = f"{percent(missing)} of the neighbours of {name!r} are missing: "
    if split.own is None or exclude == "none":
        return f"{finding}the datastore has {rows:,} rows, and {k} are looked for."
    cut = job.inputs["queries"].metrics["splits"][name]["documents"]
    documents = f" (documents of {name!r}: {cut:,})" if exclude == "document" else ""
    return (
        f"{finding}--exclude {exclude} leaves many of its tokens fewer than {k} of the {rows:,} rows{documents}; "
        f"{excluding_fewer(exclude)}."
    )
