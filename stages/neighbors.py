"""Stage precompute-neighbors: index -> neighbors.

Searches the index with the key of every token of every split. A shard is a range of tokens of one split:
its queries share the matrix products of a search, and their neighbours are written as whole Zarr shards.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts.arrays import rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import DraftArray
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage
from stages.artifacts.store import Store
from stages.lineage.corpus import corpus_of, own_splits, require_split
from stages.numbers import percent
from stages.search.exclusion import excluding_fewer, forbidden_rows
from stages.search.query_config import NeighborsConfig, exactness, lists_to_read
from stages.text.tokens import open_split

if TYPE_CHECKING:
    import torch

    from stages.encoding.carried_state import CarriedState
    from stages.encoding.state_store import StateStore
    from stages.models.language_model import LanguageModel
    from stages.search.keys import StoredKeys
    from stages.search.searcher import Searcher

__all__ = ["NeighborsConfig", "PrecomputeNeighbors"]

ROW_BYTES = 8 + 4
"""An id and a distance."""
QUERY_BYTES = 64 << 20
"""Queries of one shard, in float32: the more they are, the more share the reading of a list."""
FOUND_BYTES = 128 << 20
"""Candidates of the queries of one shard."""
FEWEST_QUERIES = 8192
MOST_QUERIES = 1 << 16
MOST_MISSING = 0.5
"""Share of a split's neighbours beyond which it is said that they are missing."""


@dataclass(frozen=True)
class QueryRange(Shard):
    """Tokens start .. stop - 1 of a split."""

    split: str
    start: int
    stop: int


@dataclass
class Encoder:
    """Makes queries of tokens whose keys are not stored; loads the model when the first are asked for."""

    model: Artifact
    eos: int
    datastore: Mapping[str, Any]
    """Settings of the datastore: queries are encoded as its keys were."""
    precision: str
    device: str
    dim: int
    """Width of keys, d."""

    @cached_property
    def loaded(self) -> "tuple[LanguageModel, torch.device]":
        from stages.models.devices import resolve_device
        from stages.models.language_model import load_model

        device = resolve_device(self.device)
        made = self.datastore
        return load_model(self.model.path, device, context=made["context"], mem_length=made.get("mem_length")), device

    def carried(self, ids: Any, start: int) -> "CarriedState":
        """The past of a token that no query was encoded before: a backbone that carries state reads up to it."""
        from stages.encoding.carried_state import CarriedState

        past = CarriedState(0 if self.loaded[0].config.carries_state else start)
        while past.start < start:
            _, past = self.encode(ids, past, min(past.start + FEWEST_QUERIES, start))
        return past

    def encode(self, ids: Any, carried: "CarriedState", stop: int) -> "tuple[np.ndarray, CarriedState]":
        """Keys of tokens carried.start .. stop - 1 as the datastore has them, [n, d], and what is carried past them."""
        from stages.encoding.carried_state import CarriedState
        from stages.encoding.encode import encode_range

        model, device = self.loaded
        start, state = carried.start, carried.state
        out = np.empty((stop - start, self.dim), self.datastore["dtype"])
        windows = {name: self.datastore[name] for name in ("context", "stride")}
        for block in encode_range(
            model, ids, self.eos, start, stop, device=device, precision=self.precision, state=state, **windows
        ):
            keys = block.key(self.datastore["key"]).float().cpu().numpy()
            out[block.start - start : block.stop - start] = keys
            state = block.state
        return out, CarriedState(stop, state)


@dataclass
class SplitWork:
    """One split whose tokens are looked up."""

    ids: Any
    """Its token ids, a Zarr array."""
    stored: int
    """How many of its tokens, from the first, have their keys in the datastore."""
    doc_offsets: Any
    neighbors: DraftArray
    distances: DraftArray

    @property
    def tokens(self) -> int:
        return int(self.ids.shape[0])


@dataclass
class Work:
    """What all shards share."""

    searcher: "Searcher"
    keys: "StoredKeys"
    values: Any
    encoder: Encoder
    states: "StateStore"
    splits: dict[str, SplitWork]
    queries_per_shard: int


class PrecomputeNeighbors(ShardedStage[NeighborsConfig, Work, QueryRange]):
    """Looks up every token's context in an index; roles: `index`, `queries` (tokens)."""

    kind = "neighbors"
    Config = NeighborsConfig

    def inputs(self, config: NeighborsConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        index = store.get(references["source"], "index")
        tokens = corpus_of(index.find("encoder"), references, store)
        for split in config.queries or ():
            require_split(tokens, split)
        return Inputs({"index": index, "queries": tokens})

    def resolve(self, config: NeighborsConfig, inputs: Inputs, execution: Execution) -> NeighborsConfig:
        from stages.models.devices import resolve_device, resolve_precision

        index = inputs["index"]
        splits = tuple(dict.fromkeys(config.queries or inputs["queries"].metrics["splits"]))
        own = own_splits(index.input("datastore"), inputs["queries"])
        exclude = "self" if config.exclude == "auto" else config.exclude
        changes = {
            "queries": splits,
            "exclude": "none" if own.isdisjoint(splits) else exclude,
            "probe": lists_to_read(config, index.config, index.metrics),
            "precision": resolve_precision(config.precision, resolve_device(execution.device)),
            **exactness(config, index.metrics["lossless"]),
        }
        return config.model_copy(update=changes)

    def device(self, execution: Execution) -> str:
        from stages.models.devices import device_name

        return device_name(execution.device)

    def open(self, job: Job[NeighborsConfig]) -> Work:
        from stages.encoding.state_store import StateStore
        from stages.models.devices import resolve_device
        from stages.search.allocator import return_large_blocks
        from stages.search.keys import StoredKeys
        from stages.search.open import open_searcher

        return_large_blocks()
        config, index, tokens = job.config, job.inputs["index"], job.inputs["queries"]
        datastore = index.input("datastore")
        corpus = datastore.input("corpus")
        keys = StoredKeys(datastore.zarr("datastore.zarr")["keys"])
        settings = {**index.config, "probe": config.probe}
        at_once, rows = _shard_sizes(config, keys.dim)
        return Work(
            searcher=open_searcher(index.file("index.faiss"), settings, job.execution.device),
            keys=keys,
            values=open_split(corpus.zarr("tokens.zarr"), datastore.config["split"]).ids,
            encoder=Encoder(
                datastore.input("encoder"),
                tokens.metrics["eos_id"],
                datastore.config,
                config.precision,
                job.execution.device,
                keys.dim,
            ),
            states=StateStore(job.draft, resolve_device(job.execution.device)),
            splits={split: _split_work(job, split, datastore, rows) for split in config.queries or ()},
            queries_per_shard=at_once,
        )

    def output_bytes(self, job: Job[NeighborsConfig], work: Work) -> int:
        return sum(split.tokens for split in work.splits.values()) * job.config.k * ROW_BYTES

    def shards(self, job: Job[NeighborsConfig], work: Work) -> Sequence[QueryRange]:
        step = work.queries_per_shard
        return [
            QueryRange(f"{name}-{start // step:06d}", name, start, min(start + step, split.tokens))
            for name, split in work.splits.items()
            for start in range(0, split.tokens, step)
        ]

    def run_shard(self, job: Job[NeighborsConfig], work: Work, shard: QueryRange) -> dict[str, Any]:
        from stages.search.keys import take_values

        started = time.perf_counter()
        split = work.splits[shard.split]
        earlier = [other.key for other in self.shards(job, work) if _encodes_before(other, shard, split.stored)]
        queries = _queries(work, split, shard, earlier[-1] if earlier else None)
        ids, distances = _search(job.config, work, split, shard, queries)
        for first in range(shard.start, shard.stop, split.neighbors.rows_per_shard):
            number = first // split.neighbors.rows_per_shard
            block = slice(first - shard.start, first - shard.start + split.neighbors.rows_per_shard)
            split.neighbors.write(number, ids[block])
            split.distances.write(number, distances[block])
        found = np.flatnonzero(ids[:, 0] >= 0)
        nearest = take_values(work.values, ids[found, 0])
        hits = nearest == np.asarray(split.ids[shard.start : shard.stop])[found]
        return {
            "hits": int(hits.sum()),
            "missing": int((ids < 0).sum()),
            "seconds": time.perf_counter() - started,
        }

    def finish(self, job: Job[NeighborsConfig], work: Work) -> dict[str, Any]:
        shards = self.shards(job, work)
        records = {
            name: [job.draft.record(shard.key) for shard in shards if shard.split == name] for name in work.splits
        }
        splits = {name: _figures(split.tokens, job.config.k, records[name]) for name, split in work.splits.items()}
        for name, figures in splits.items():
            if figures["missing"] > MOST_MISSING:
                job.reporter.warning(_scarcity(job, name, work.splits[name], figures["missing"]))
        return {"k": job.config.k, "metric": work.searcher.metric, "splits": splits}


def _shard_sizes(config: NeighborsConfig, dim: int) -> tuple[int, int]:
    """Queries of a shard, and rows of a Zarr shard, which divides it; fixed by settings alone."""
    found = max(config.k, int(config.candidates or 0)) * ROW_BYTES
    fitting = min(QUERY_BYTES // (4 * dim), FOUND_BYTES // found, MOST_QUERIES)
    queries = max(FEWEST_QUERIES, fitting)
    rows = min(rows_per_shard(config.k * ROW_BYTES), queries)
    return queries // rows * rows, rows


def _split_work(job: Job[NeighborsConfig], split: str, datastore: Artifact, rows: int) -> SplitWork:
    tokens, k = job.inputs["queries"], job.config.k
    opened = open_split(tokens.zarr("tokens.zarr"), split)
    own = split in own_splits(datastore, tokens)
    shape = (int(opened.ids.shape[0]), k)
    return SplitWork(
        ids=opened.ids,
        stored=datastore.metrics["rows"] if own else 0,
        doc_offsets=opened.doc_offsets,
        neighbors=job.draft.array(f"neighbors.zarr/{split}/ids", shape, np.int64, rows),
        distances=job.draft.array(f"neighbors.zarr/{split}/distances", shape, np.float32, rows),
    )


def _search(
    config: NeighborsConfig, work: Work, split: SplitWork, shard: QueryRange, queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids [n, k] and distances [n, k] of the tokens of a shard."""
    from stages.search.distances import search_with_candidates

    exclude = config.exclude if split.stored else "none"
    forbidden = forbidden_rows(exclude, shard.start, shard.stop, split.doc_offsets)
    candidates = None if config.candidates is None else int(config.candidates)
    return search_with_candidates(work.searcher, work.keys, queries, config.k, candidates, forbidden)


def _encodes_before(other: QueryRange, shard: QueryRange, stored: int) -> bool:
    """Whether another shard encodes queries of the same split, before this one."""
    return other.split == shard.split and other.start < shard.start and other.stop > stored


def _queries(work: Work, split: SplitWork, shard: QueryRange, earlier: str | None) -> np.ndarray:
    """Query keys [n, d] float32: read where they are stored, encoded where not.

    Args:
        earlier: key of the shard that encoded the queries before those of this one; None: there is none.
    """
    between = min(max(split.stored, shard.start), shard.stop)
    out = np.empty((shard.stop - shard.start, work.keys.dim), np.float32)
    if between > shard.start:
        out[: between - shard.start] = work.keys.rows_between(shard.start, between)
    if between < shard.stop:
        left = None if earlier is None else work.states.before(earlier, between)
        past = left or work.encoder.carried(split.ids, between)
        out[between - shard.start :], after = work.encoder.encode(split.ids, past, shard.stop)
        work.states.keep(shard.key, after, idle=earlier)
    return out


def _figures(tokens: int, k: int, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seconds = sum(record["seconds"] for record in records)
    return {
        "queries": tokens,
        "queries_per_second": round(tokens / seconds, 1),
        "top1_accuracy": round(sum(record["hits"] for record in records) / tokens, 6),
        "missing": round(sum(record["missing"] for record in records) / (tokens * k), 6),
    }


def _scarcity(job: Job[NeighborsConfig], name: str, split: SplitWork, missing: float) -> str:
    """What is said of a split most of whose neighbours are missing: how many, why, and what would find more."""
    k, exclude = job.config.k, job.config.exclude
    rows = job.inputs["index"].input("datastore").metrics["rows"]
    told = f"{percent(missing)} of the neighbours of {name!r} are missing: "
    if not split.stored or exclude == "none":
        return f"{told}the datastore has {rows:,} rows, and {k} are looked for."
    cut = job.inputs["queries"].metrics["splits"][name]["documents"]
    documents = f" (documents of {name!r}: {cut:,})" if exclude == "document" else ""
    return (
        f"{told}--exclude {exclude} leaves many of its tokens fewer than {k} of the {rows:,} rows{documents}; "
        f"{excluding_fewer(exclude)}."
    )
