"""Stage build-index: datastore -> index.

The index is trained on a sample; then keys are added part by part, each part kept; then the parts are
merged. Kinds that cannot be merged (flat, HNSW, some factory strings) are filled in one piece.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage, ShardJob
from stages.artifacts.store import Store
from stages.search.config import IndexConfig, Keys, automatic_kind, resolve

if TYPE_CHECKING:
    from stages.search.keys import StoredKeys
    from stages.search.searcher import Searcher

__all__ = ["BuildIndex", "IndexConfig"]

INDEX_FILE = "index.faiss"
TRAINED = Path("scratch/trained.faiss")
TRAIN, MERGE, WHOLE = "train", "merge", "whole"
PART_BYTES = 64 << 20
"""Stored keys that go into one part."""


@dataclass(frozen=True)
class Part(Shard):
    """A step of the work; `stored` are the datastore's shards that it adds."""

    stored: range = range(0)


@dataclass(frozen=True)
class Plan:
    """The parts that keys are added in; one, WHOLE, where parts could not be merged."""

    parts: Sequence[Part]


@dataclass(frozen=True)
class Work:
    """What computing parts needs."""

    plan: Plan
    keys: "StoredKeys"
    folder: Path

    def trained(self) -> Any:
        """The empty index, as the first step left it."""
        from stages.search.open import read_index

        return read_index(self.folder / TRAINED)


class BuildIndex(ShardedStage[IndexConfig, Plan, Work, Part]):
    """Indexes a datastore's keys; role: `datastore`."""

    kind = "index"
    Config = IndexConfig
    unit = "parts"

    def inputs(self, config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs({"datastore": store.get(references["source"], "datastore")})

    def resolve(self, config: IndexConfig, inputs: Inputs, execution: Execution) -> IndexConfig:
        keys = _described(inputs)
        resolved = resolve(config, keys)
        if config.index == "auto":
            kind, why = automatic_kind(keys, config.largest_gigabytes)
            execution.reporter.info(f"index {kind}: {why}")
        return resolved

    def plan(self, job: Job[IndexConfig]) -> Plan:
        from stages.search.build import grows_in_parts
        from stages.search.factory import empty_index

        keys = _stored_keys(job)
        index = empty_index(job.config, keys.dim, keys.dtype.name)
        return Plan(_parts(keys) if grows_in_parts(index) else [Part(WHOLE)])

    def shards(self, job: ShardJob[IndexConfig], plan: Plan) -> Sequence[Part]:
        merging = [Part(MERGE)] if plan.parts[0].key != WHOLE else []
        return [Part(TRAIN), *plan.parts, *merging]

    def phase(self, shard: Part) -> str:
        return shard.key if shard.key in (TRAIN, MERGE) else WHOLE

    def open(self, job: ShardJob[IndexConfig], plan: Plan) -> Work:
        from stages.search.allocator import return_large_blocks

        return_large_blocks()
        return Work(plan, _stored_keys(job), job.folder)

    def run_shard(self, job: ShardJob[IndexConfig], work: Work, shard: Part) -> ShardOutput:
        from stages.search import build

        output = ShardOutput(job.folder)
        if shard.key == TRAIN:
            build.train(job.config, work.keys, output.add(TRAINED))
        elif shard.key == WHOLE:
            build.build_whole(work.trained(), work.keys, output.add(INDEX_FILE))
        elif shard.key == MERGE:
            parts = [work.folder / _part_file(part) for part in work.plan.parts]
            build.merge(work.trained(), parts, work.keys.rows, output.add(INDEX_FILE))
        else:
            path = output.add(_part_file(shard))
            output.record["keys"] = build.write_part(work.trained(), work.keys, shard.stored, path)
        return output

    def finish(self, job: Job[IndexConfig], plan: Plan) -> dict[str, Any]:
        from stages.search.open import open_searcher

        config, path, keys = job.config, job.folder / INDEX_FILE, _stored_keys(job)
        searcher = open_searcher(path, config.model_dump(), (keys.rows, keys.dim))
        if searcher.rows != keys.rows:
            raise AssertionError(f"index of {searcher.rows} rows for {keys.rows} keys")
        kind, why = automatic_kind(_described(job.inputs), config.largest_gigabytes)
        size = path.stat().st_size
        return {
            "rows": keys.rows,
            "dim": keys.dim,
            "bytes": size,
            "bytes_per_key": round(size / keys.rows, 2),
            "lossless": searcher.lossless,
            "automatic": {"index": kind, "why": why},
            **(_measured(job, searcher, keys) if config.recall_queries else {}),
        }


def _described(inputs: Inputs) -> Keys:
    metrics = inputs["datastore"].metrics
    return Keys(metrics["rows"], metrics["dim"], metrics["dtype"])


def _stored_keys(job: ShardJob[IndexConfig]) -> "StoredKeys":
    from stages.search.keys import StoredKeys

    return StoredKeys(job.inputs["datastore"].zarr("datastore.zarr")["keys"])


def _parts(keys: "StoredKeys") -> list[Part]:
    shard_bytes = keys.rows_per_shard * keys.dim * keys.dtype.itemsize
    together = max(1, PART_BYTES // shard_bytes)
    starts = range(0, keys.shards, together)
    return [Part(f"add-{n:06d}", range(s, min(s + together, keys.shards))) for n, s in enumerate(starts)]


def _part_file(part: Part) -> Path:
    return Path("scratch", f"{part.key}.lists")


def _measured(job: Job[IndexConfig], searcher: "Searcher", keys: "StoredKeys") -> dict[str, Any]:
    """How much of exact search the index finds, and how fast; progress is shown meanwhile."""
    from stages.search.recall import measure

    queries = min(job.config.recall_queries, keys.rows)
    job.reporter.info(f"measuring recall with {queries:,} queries, each compared with {keys.rows:,} keys")
    figures = measure(searcher, keys, queries, job.config.seed, job.reporter.progress)
    _warn_of_recall(job, figures["recall"])
    return figures


def _warn_of_recall(job: Job[IndexConfig], recall: Mapping[str, float]) -> None:
    k, lowest = min(recall.items(), key=lambda item: item[1])
    if lowest < 0.5:
        job.reporter.warning(
            f"Only {lowest:.0%} of the {k} nearest keys are found; more probe, or another index, finds more."
        )
