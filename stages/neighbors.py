"""Stage precompute-neighbors: index -> neighbors.

Searches the index with the key of every token of every split. A shard is a range of tokens of one split:
its queries share the matrix products of a search, and their neighbours are written as whole Zarr shards.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from stages.artifacts.arrays import rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import DraftArray
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import UsageError
from stages.evaluation.corpus import corpus_of, require_split

if TYPE_CHECKING:
    import torch

    from stages.evaluation.encoding.history import History
    from stages.evaluation.encoding.trail import Trail
    from stages.models.language_model import LanguageModel
    from stages.search.keys import StoredKeys
    from stages.search.searcher import Searcher

ROW_BYTES = 8 + 4
"""An id and a distance."""
QUERY_BYTES = 64 << 20
"""Queries of one shard, in float32: the more they are, the more share the reading of a list."""
FOUND_BYTES = 128 << 20
"""Candidates of the queries of one shard."""
FEWEST_QUERIES = 8192
MOST_QUERIES = 1 << 16

Count = Annotated[int, Field(gt=0)]


class NeighborsConfig(StageConfig):
    """Settings of precompute-neighbors. What does not apply is None once resolved."""

    not_identity = frozenset({"recall"})

    k: Count = 4
    """Neighbours of a token."""
    queries: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    """Splits whose tokens are looked up; None: every split."""
    exclude: Annotated[str, Field(pattern=r"^(auto|self|document|none|window:[0-9]{1,15})$")] = "auto"
    """Rows that a token of the datastore's own split may not find: its own (self), those within N of it
    (window:N), those of its document, or none; auto: self."""
    probe: Count | Literal["auto"] | None = "auto"
    """Lists of the index that a query reads; auto: as few as `recall` allows, by what the index measured of
    itself, at most its own number. None: it has no lists."""
    recall: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Share of the neighbours found with the index's own `probe` that an automatic one must still find."""
    exact: bool = False
    """Whether distances are those of the stored keys: recomputed, where the index holds compressed ones."""
    candidates: Count | Literal["auto"] | None = "auto"
    """Neighbours by the index's distance among which the k best by exact distance are taken; auto: 4 k, at
    least 64 and at most k + 1,024. None: distances are not recomputed."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the forward pass that makes queries where they are not stored."""


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

    def history(self, ids: Any, start: int) -> "History":
        """The past of a token that no query was encoded before: a backbone that carries state reads up to it."""
        from stages.evaluation.encoding.history import History

        past = History(0 if self.loaded[0].config.carries_state else start)
        while past.start < start:
            _, past = self.encode(ids, past, min(past.start + FEWEST_QUERIES, start))
        return past

    def encode(self, ids: Any, history: "History", stop: int) -> "tuple[np.ndarray, History]":
        """Keys of tokens history.start .. stop - 1 in the dtype of the datastore, [n, d], and the history behind."""
        from stages.evaluation.encoding.encode import encode_range
        from stages.evaluation.encoding.history import History

        model, device = self.loaded
        start, state = history.start, history.state
        out = np.empty((stop - start, self.dim), self.datastore["dtype"])
        windows = {name: self.datastore[name] for name in ("context", "stride")}
        for block in encode_range(
            model, ids, self.eos, start, stop, device=device, precision=self.precision, state=state, **windows
        ):
            keys = block.key(self.datastore["key"]).float().cpu().numpy()
            out[block.start - start : block.stop - start] = keys
            state = block.state
        return out, History(stop, state)


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
    trail: "Trail"
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
        own = any(_is_own(index.input("datastore"), inputs["queries"], split) for split in splits)
        exclude = "self" if config.exclude == "auto" else config.exclude
        changes = {
            "queries": splits,
            "exclude": exclude if own else "none",
            "probe": _probe(config, index),
            "precision": resolve_precision(config.precision, resolve_device(execution.device)),
            **_exactness(config, index.metrics["lossless"]),
        }
        return config.model_copy(update=changes)

    def open(self, job: Job[NeighborsConfig]) -> Work:
        from stages.evaluation.encoding.trail import Trail
        from stages.models.devices import resolve_device
        from stages.search.allocator import return_large_blocks
        from stages.search.keys import StoredKeys
        from stages.search.searcher import open_searcher

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
            values=corpus.zarr("tokens.zarr")[f"{datastore.config['split']}/ids"],
            encoder=Encoder(
                datastore.input("encoder"),
                tokens.metrics["eos_id"],
                datastore.config,
                config.precision,
                job.execution.device,
                keys.dim,
            ),
            trail=Trail(job.draft, resolve_device(job.execution.device)),
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
        return {
            "k": job.config.k,
            "metric": work.searcher.metric,
            "splits": {
                name: _figures(split.tokens, job.config.k, records[name]) for name, split in work.splits.items()
            },
        }


def _is_own(datastore: Artifact, tokens: Artifact, split: str) -> bool:
    """Whether row i of the datastore belongs to token i of this split."""
    return split == datastore.config["split"] and tokens.record == datastore.manifest.inputs["corpus"]


def _probe(config: NeighborsConfig, index: Artifact) -> int | None:
    """Lists that a query reads: as asked, or the fewest that lose no more neighbours than allowed."""
    most, lists = index.config["probe"], index.config["lists"]
    if most is None and isinstance(config.probe, int):
        raise UsageError(f"{index.reference} has no lists to probe: leave probe out.")
    if isinstance(config.probe, int) and lists is not None and config.probe > lists:
        raise UsageError(f"probe {config.probe} is more than the {lists} lists of {index.reference}.")
    if isinstance(config.probe, int):
        return config.probe
    if most is None:
        return None
    table = index.metrics.get("recall_by_probe")
    if table is None:
        return most
    measured = sorted(int(k) for k in table[str(most)])
    k = str(next((at for at in measured if at >= config.k), measured[-1]))
    enough = config.recall * table[str(most)][k]
    return min(int(probe) for probe, recall in table.items() if recall[k] >= enough)


def _exactness(config: NeighborsConfig, lossless: bool) -> dict[str, Any]:
    """`exact` and `candidates` as they come out for an index that does or does not hold whole keys."""
    if lossless or not config.exact:
        if isinstance(config.candidates, int):
            why = "its index holds whole keys" if lossless else "that is not asked for (--exact)"
            raise UsageError(f"candidates are for recomputing distances, but {why}: leave it out.")
        return {"exact": lossless, "candidates": None}
    if isinstance(config.candidates, int):
        if config.candidates < config.k:
            raise UsageError(f"{config.candidates} candidates are fewer than k = {config.k}.")
        return {}
    return {"candidates": min(max(64, 4 * config.k), config.k + 1024)}


def _shard_sizes(config: NeighborsConfig, dim: int) -> tuple[int, int]:
    """Queries of a shard, and rows of a Zarr shard, which divides it; fixed by settings alone."""
    found = max(config.k, int(config.candidates or 0)) * ROW_BYTES
    fitting = min(QUERY_BYTES // (4 * dim), FOUND_BYTES // found, MOST_QUERIES)
    queries = max(FEWEST_QUERIES, fitting)
    rows = min(rows_per_shard(config.k * ROW_BYTES), queries)
    return queries // rows * rows, rows


def _split_work(job: Job[NeighborsConfig], split: str, datastore: Artifact, rows: int) -> SplitWork:
    tokens, k = job.inputs["queries"].zarr("tokens.zarr"), job.config.k
    ids: Any = tokens[f"{split}/ids"]
    own = _is_own(datastore, job.inputs["queries"], split)
    shape = (int(ids.shape[0]), k)
    return SplitWork(
        ids=ids,
        stored=datastore.metrics["rows"] if own else 0,
        doc_offsets=tokens[f"{split}/doc_offsets"],
        neighbors=job.draft.array(f"neighbors.zarr/{split}/ids", shape, np.int64, rows),
        distances=job.draft.array(f"neighbors.zarr/{split}/distances", shape, np.float32, rows),
    )


def _search(
    config: NeighborsConfig, work: Work, split: SplitWork, shard: QueryRange, queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids [n, k] and distances [n, k] of the tokens of a shard."""
    from stages.search.distances import exact_order

    forbidden = forbidden_rows(config.exclude, shard.start, shard.stop, split.doc_offsets)
    if not split.stored:
        forbidden = None
    if config.candidates is None:
        return work.searcher.search(queries, config.k, forbidden)
    ids, _ = work.searcher.search(queries, int(config.candidates), forbidden)
    return exact_order(work.keys, queries, ids, work.searcher.metric, config.k)


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
        past = work.trail.before(earlier, between) if earlier is not None else work.encoder.history(split.ids, between)
        out[between - shard.start :], after = work.encoder.encode(split.ids, past, shard.stop)
        work.trail.keep(shard.key, after)
    return out


def forbidden_rows(exclude: str, start: int, stop: int, doc_offsets: Any) -> np.ndarray | None:
    """Rows that tokens start .. stop - 1 of the datastore's own split may not find.

    Args:
        exclude: `none`, `self`, `window:N` (rows i - N … i + N) or `document`.
        doc_offsets: [D + 1] where each document of the split starts, and its end.
    Returns: [stop - start, 2] int64, rows first <= row < last of each token; None if none is forbidden.
    """
    if exclude == "none":
        return None
    tokens = np.arange(start, stop)
    if exclude == "document":
        offsets = np.asarray(doc_offsets[:])
        document = np.searchsorted(offsets, tokens, side="right")
        return np.stack([offsets[document - 1], offsets[document]], axis=1)
    width = 0 if exclude == "self" else int(exclude.partition(":")[2])
    return np.stack([np.maximum(tokens - width, 0), tokens + width + 1], axis=1)


def _figures(tokens: int, k: int, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seconds = sum(record["seconds"] for record in records)
    return {
        "queries": tokens,
        "queries_per_second": round(tokens / seconds, 1),
        "top1_accuracy": round(sum(record["hits"] for record in records) / tokens, 6),
        "missing": round(sum(record["missing"] for record in records) / (tokens * k), 6),
    }
