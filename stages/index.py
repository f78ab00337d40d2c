"""Stage build-index: datastore -> index.

The index is trained on a sample; then keys are added part by part, each part kept; then the parts are
merged. Kinds that cannot be merged (flat, HNSW, some factory strings) are filled in one piece.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage
from stages.artifacts.store import Store
from stages.search.config import IndexConfig, Keys, automatic_kind, resolve

if TYPE_CHECKING:
    from stages.search.keys import StoredKeys

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


@dataclass
class Work:
    """What all parts share."""

    keys: "StoredKeys"
    folder: Path
    parts: Sequence[Part]

    def trained(self) -> Any:
        """The empty index, as the first step left it."""
        from stages.search.open import read_index

        return read_index(self.folder / TRAINED)


class BuildIndex(ShardedStage[IndexConfig, Work, Part]):
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

    def open(self, job: Job[IndexConfig]) -> Work:
        from stages.search.allocator import return_large_blocks
        from stages.search.build import grows_in_parts
        from stages.search.factory import empty_index
        from stages.search.keys import StoredKeys

        return_large_blocks()
        keys = StoredKeys(job.inputs["datastore"].zarr("datastore.zarr")["keys"])
        index = empty_index(job.config, keys.dim, keys.dtype.name)
        parts = _parts(keys) if grows_in_parts(index) else [Part(WHOLE)]
        return Work(keys, job.draft.path, parts)

    def shards(self, job: Job[IndexConfig], work: Work) -> Sequence[Part]:
        merging = [Part(MERGE)] if work.parts[0].key != WHOLE else []
        return [Part(TRAIN), *work.parts, *merging]

    def run_shard(self, job: Job[IndexConfig], work: Work, shard: Part) -> dict[str, Any] | None:
        from stages.search import build

        if shard.key == TRAIN:
            build.train(job.config, work.keys, job.draft.add(TRAINED))
        elif shard.key == WHOLE:
            build.build_whole(work.trained(), work.keys, job.draft.add(INDEX_FILE))
        elif shard.key == MERGE:
            parts = [work.folder / _part_file(part) for part in work.parts]
            build.merge(work.trained(), parts, work.keys.rows, job.draft.add(INDEX_FILE))
        else:
            path = job.draft.add(_part_file(shard))
            return {"keys": build.write_part(work.trained(), work.keys, shard.stored, path)}
        return None

    def finish(self, job: Job[IndexConfig], work: Work) -> dict[str, Any]:
        from stages.search.open import open_searcher
        from stages.search.recall import measure

        config, path = job.config, job.draft.path / INDEX_FILE
        searcher = open_searcher(path, config.model_dump())
        if searcher.rows != work.keys.rows:
            raise AssertionError(f"index of {searcher.rows} rows for {work.keys.rows} keys")
        kind, why = automatic_kind(_described(job.inputs), config.largest_gigabytes)
        size = path.stat().st_size
        figures = measure(searcher, work.keys, config.recall_queries, config.seed)
        _warn_of_recall(job, figures["recall"])
        return {
            "rows": work.keys.rows,
            "dim": work.keys.dim,
            "bytes": size,
            "bytes_per_key": round(size / work.keys.rows, 2),
            "lossless": searcher.lossless,
            "automatic": {"index": kind, "why": why},
            **figures,
        }


def _described(inputs: Inputs) -> Keys:
    metrics = inputs["datastore"].metrics
    return Keys(metrics["rows"], metrics["dim"], metrics["dtype"])


def _parts(keys: "StoredKeys") -> list[Part]:
    shard_bytes = keys.rows_per_shard * keys.dim * keys.dtype.itemsize
    together = max(1, PART_BYTES // shard_bytes)
    starts = range(0, keys.shards, together)
    return [Part(f"add-{n:06d}", range(s, min(s + together, keys.shards))) for n, s in enumerate(starts)]


def _part_file(part: Part) -> Path:
    return Path("scratch", f"{part.key}.lists")


def _warn_of_recall(job: Job[IndexConfig], recall: Mapping[str, float]) -> None:
    k, lowest = min(recall.items(), key=lambda item: item[1])
    if lowest < 0.5:
        job.reporter.warning(
            f"Only {lowest:.0%} of the {k} nearest keys are found; more probe, or another index, finds more."
        )
