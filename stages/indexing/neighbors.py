"""The work of precompute-neighbors: a search with the key of every token of every split.

A shard is a range of tokens of one split. Its queries share the matrix products of a search, and
their neighbours are written as whole Zarr shards.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, ShardedWork, ShardJob, ShardPlan
from stages.encoding.carried_state import StateStore
from stages.encoding.encode import SplitReader
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.encoding.window_settings import TokenRange
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.indexing.layouts import shard_sizes, split_layouts
from stages.lineage.rows import DatastoreRows, own_rows, stored_keys
from stages.lineage.runs import OwnRows
from stages.machine import return_large_blocks
from stages.models.computing import resolve_device
from stages.models.config import model_of
from stages.numbers import percent, rate
from stages.search.config import NeighborsConfig, excluding_fewer
from stages.search.distances import search_with_candidates
from stages.search.keys import StoredKeys, take_values
from stages.search.open import open_searcher, tell_of_large
from stages.search.searcher import Searcher
from stages.text.tokens import TokenSplit, open_split

MOST_MISSING = 0.5
"""Share of missing neighbours in a split beyond which the user is warned."""


@dataclass(frozen=True)
class QueryRange(TokenRange):
    """A range of tokens of a split that are searched together."""

    split: str


@dataclass(frozen=True)
class SplitPlan:
    """One split whose tokens are looked up."""

    tokens: int
    own_rows: OwnRows | None
    """Its rows in the datastore; None: it has none."""
    neighbors: ArrayLayout
    distances: ArrayLayout

    @property
    def stored(self) -> tuple[int, int]:
        """Number of leading tokens whose keys are in consecutive rows of the datastore, and the
        first of these rows.
        """
        return (0, 0) if self.own_rows is None else self.own_rows.stored


@dataclass(frozen=True)
class NeighborsPlan(ShardPlan[QueryRange]):
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
        for earlier in reversed(self.of_split(shard.split)):
            if earlier.stop > shard.start:
                continue
            if earlier.stop <= stored:
                break
            yield replace(earlier, start=max(stored, earlier.start))
        if stored:
            yield TokenRange(f"{shard.split}-stored", 0, stored)


@dataclass(frozen=True)
class NeighborSearch:
    """Everything that computing shards needs."""

    plan: NeighborsPlan
    searcher: Searcher
    keys: StoredKeys
    values: Any
    encoder: Callable[[], KeyEncoder]
    """Encodes tokens whose keys are not stored; the first call loads the model."""
    states: StateStore
    tokens: dict[str, TokenSplit]
    """The splits that are looked up."""


class NeighborsWork(ShardedWork[NeighborsConfig, NeighborsPlan, NeighborSearch, QueryRange]):
    """Looks up every token's context in an index; roles: `index`, `queries` (tokens)."""

    def plan(self, job: Job[NeighborsConfig]) -> NeighborsPlan:
        config = job.config
        datastore = job.inputs["index"].input("datastore")
        carries = model_of(datastore.input("encoder")).carries_state
        at_once, rows = shard_sizes(config, datastore.metrics["dim"])
        rows_of_splits = own_rows(datastore, job.inputs["queries"])
        tell_of_large(job.inputs["index"].file("index.faiss"), job.reporter)

        splits = {}
        shards: list[QueryRange] = []
        layouts = []
        for name in config.queries or ():
            split = _plan_split(job, name, rows_of_splits.get(name), rows)
            splits[name] = split
            shards += _query_ranges(name, split, at_once, carries)
            layouts += [split.neighbors, split.distances]
        return NeighborsPlan(shards, splits, arrays=layouts)

    def open(self, job: ShardJob[NeighborsConfig], plan: NeighborsPlan) -> NeighborSearch:
        return_large_blocks()
        config = job.config
        index = job.inputs["index"]
        tokens = job.inputs["queries"]
        datastore = index.input("datastore")
        keys = stored_keys(datastore)
        settings = {**index.config, "probe": config.probe}
        group = tokens.zarr("tokens.zarr")
        device = resolve_device(job.execution.device)
        windows = WindowSettings.of(datastore.config)
        reader = SplitReader(Corpus.of(tokens, group), windows, False, device, config.precision)
        return NeighborSearch(
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
        self, job: ShardJob[NeighborsConfig], resources: NeighborSearch, shard: QueryRange
    ) -> ShardOutput:
        started = time.perf_counter()
        output = ShardOutput(job.folder)
        split = resources.plan.splits[shard.split]
        queries = _queries(resources, shard, output)
        ids, distances = _search(job.config, resources, shard, queries)

        # Ranges of tokens begin and end with whole shards of the arrays.
        size = split.neighbors.rows_per_shard
        for first in range(shard.start, shard.stop, size):
            number = first // size
            offset = first - shard.start
            block = slice(offset, offset + size)
            output.write(split.neighbors, number, ids[block])
            output.write(split.distances, number, distances[block])

        # How often the nearest neighbour has the token itself. The nearest rows are in any shard of
        # the datastore; sorted by shard, each is read once.
        with_neighbor = np.flatnonzero(ids[:, 0] >= 0)
        nearest_tokens = take_values(resources.values, ids[with_neighbor, 0])
        tokens = np.asarray(resources.tokens[shard.split].ids[shard.start : shard.stop])
        hits = nearest_tokens == tokens[with_neighbor]
        output.record |= {
            "hits": int(hits.sum()),
            "missing": int((ids < 0).sum()),
            "seconds": time.perf_counter() - started,
        }
        return output

    def finish(self, job: Job[NeighborsConfig], plan: NeighborsPlan) -> dict[str, Any]:
        k = job.config.k
        splits = {}
        for name, split in plan.splits.items():
            records = [job.draft.record(shard.key) for shard in plan.of_split(name)]
            figures = _figures(split.tokens, k, records)
            splits[name] = figures
            missing = figures["missing"]
            if missing > MOST_MISSING:
                job.reporter.warning(_scarcity(job, name, split, missing))
        metric = job.inputs["index"].config["metric"]
        return {"k": k, "metric": metric, "splits": splits}


def _plan_split(
    job: Job[NeighborsConfig], split: str, split_rows: OwnRows | None, rows: int
) -> SplitPlan:
    """Plan one split; `rows`: of a shard of its arrays."""
    tokens = int(job.inputs["queries"].metrics["splits"][split]["tokens"])
    neighbors, distances = split_layouts(split, tokens, job.config.k, rows)
    return SplitPlan(tokens, split_rows, neighbors, distances)


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


def _search(
    config: NeighborsConfig, resources: NeighborSearch, shard: QueryRange, queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids [n, k] and distances [n, k] of the neighbours of a shard's tokens."""
    split_rows = resources.plan.splits[shard.split].own_rows
    forbidden = None
    if split_rows is not None:
        forbidden = split_rows.forbidden(config.exclude, shard.start, shard.stop)
    candidates = None if config.candidates is None else int(config.candidates)
    return search_with_candidates(
        resources.searcher, resources.keys, queries, config.k, candidates, forbidden
    )


def _queries(resources: NeighborSearch, shard: QueryRange, output: ShardOutput) -> np.ndarray:
    """Query keys [n, d] float32: stored keys are read, and others are encoded."""
    num_stored, first_row = resources.plan.splits[shard.split].stored
    # Keys of the datastore's own tokens are stored, so only later tokens are encoded.
    stored_stop = min(max(num_stored, shard.start), shard.stop)
    count = stored_stop - shard.start
    keys = np.empty((shard.stop - shard.start, resources.keys.dim), np.float32)
    if count:
        start_row = first_row + shard.start
        keys[:count] = resources.keys.rows_between(start_row, start_row + count)

    if stored_stop < shard.stop:
        tokens = replace(shard, start=stored_stop)
        earlier = resources.plan.encoded_before(shard)
        encoder = resources.encoder()
        encoded = encoder.encode_shard(shard.split, tokens, earlier, resources.states, output)
        keys[count:] = search_keys(encoded.keys)
    return keys


def _figures(tokens: int, k: int, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of a split, from the records of its shards."""
    seconds = 0.0
    hits = 0
    missing = 0
    for record in records:
        seconds += record["seconds"]
        hits += record["hits"]
        missing += record["missing"]
    return {
        "queries": tokens,
        "queries_per_second": rate(tokens, seconds),
        "top1_accuracy": round(hits / tokens, 6),
        "missing": round(missing / (tokens * k), 6),
    }


def _scarcity(job: Job[NeighborsConfig], name: str, split: SplitPlan, missing: float) -> str:
    """Warning for a split with most of its neighbours missing: the share, the reason, and advice."""
    k = job.config.k
    exclude = job.config.exclude
    rows = job.inputs["index"].input("datastore").metrics["rows"]
    finding = f"{percent(missing)} of the neighbours of {name!r} are missing: "
    if split.own_rows is None or exclude == "none":
        return f"{finding}the datastore has {rows:,} rows, and {k} are looked for."

    documents = ""
    if exclude == "document":
        count = job.inputs["queries"].metrics["splits"][name]["documents"]
        documents = f" (documents of {name!r}: {count:,})"
    return (
        f"{finding}--exclude {exclude} leaves many of its tokens fewer than {k} of the {rows:,} rows{documents}; "
        f"{excluding_fewer(exclude)}."
    )
