"""The work of build-index for keys.

The index is trained on a sample. Keys are added part by part, and each part is committed. Then the
parts are merged. Kinds that cannot be merged (flat, HNSW, some factory strings) are filled in one
piece.

With `--merge` or `--keep` some rows are left out. `counts.zarr/counts` is the number of rows that
each row stands for.

If the datastore was made from another one, that one's index is changed if its kind allows. Nothing
is trained, and only new keys are added. Rows that were encoded again have new keys, so they are
removed and added. A flat index is not trained, and is always built anew as a copy of the keys.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from stages.array_files import map_arrays
from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, Shard, ShardedWork, ShardJob, ShardPlan
from stages.indexing.change import compared
from stages.indexing.settings import PART_BYTES, leaves_out
from stages.lineage.held_rows import write_held_rows
from stages.lineage.indexes import COUNTS, described_keys
from stages.lineage.rows import stored_keys
from stages.machine import return_large_blocks
from stages.search import build
from stages.search.automatic import automatic_kind
from stages.search.build import grows_in_parts
from stages.search.change import merge_changed, write_emptied
from stages.search.config import IndexConfig
from stages.search.factory import empty_index
from stages.search.keys import StoredKeys
from stages.search.merging import SCRATCH_FILE
from stages.search.open import open_searcher, read_index
from stages.search.quality import measure
from stages.search.searcher import Searcher
from stages.updating.unchanged_keys import UnchangedKeys, unchanged_keys

INDEX_FILE = "index.faiss"
TRAINED = Path("scratch/trained.faiss")
TRAIN = "train"
MERGE = "merge"
WHOLE = "whole"
FEWEST_QUERIES = 100
"""Fewest queries for measuring the recall of a changed index."""


@dataclass(frozen=True)
class IndexPart(Shard):
    """A step of the work; `stored`: numbers of the datastore's shards that it adds."""

    stored: Sequence[int] = ()


@dataclass(frozen=True)
class IndexPlan(ShardPlan[IndexPart]):
    """The parts in which keys are added; a single one, WHOLE, if parts cannot be merged.

    `kept_keys`: the keys that the previous index already has; None: there is no previous index.
    """

    parts: Sequence[IndexPart]
    kept_keys: UnchangedKeys | None = None
    counts: ArrayLayout | None = None
    """Layout of the number of rows that each row stands for; None: all rows are held."""


@dataclass(frozen=True)
class OpenedKeys:
    """Everything that computing parts needs."""

    plan: IndexPlan
    keys: StoredKeys
    folder: Path

    def trained(self) -> Any:
        """The trained, empty index from the first step."""
        return read_index(self.folder / TRAINED)

    @cached_property
    def counts(self) -> np.ndarray | None:
        """Number of rows that each row stands for, as the first step chose; None: all rows are
        held.
        """
        return None if self.plan.counts is None else _counts(self.folder)

    @property
    def selects(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """Gives the mask of the rows that are added; None: all are."""
        counts = self.counts
        if counts is not None:
            return lambda rows: counts[rows] > 0  # of the mapped file only these rows
        return None if self.plan.kept_keys is None else self.plan.kept_keys.are_new

    @property
    def part_files(self) -> list[Path]:
        return [self.folder / _part_file(part) for part in self.plan.parts]


class VectorIndexWork(ShardedWork[IndexConfig, IndexPlan, OpenedKeys, IndexPart]):
    """Indexes a datastore's keys; roles: `datastore`, and `previous` for an index that is changed."""

    def plan(self, job: Job[IndexConfig]) -> IndexPlan:
        keys = _stored_keys(job)
        if PREVIOUS in job.inputs:
            kept_keys = unchanged_keys(job.inputs["datastore"])
            parts = _parts(keys, kept_keys.shards_of_new(keys.rows, keys.rows_per_shard))
            shards = [IndexPart(TRAIN, phase=TRAIN), *parts, IndexPart(MERGE, phase=MERGE)]
            return IndexPlan(shards, parts, kept_keys)

        config = job.config
        title = None
        if config.train_keys:
            codes = "codes" if config.lists is None else f"{config.lists:,} lists"
            title = f"learning {codes} from {config.train_keys:,} keys (k-means)"
        training = IndexPart(TRAIN, phase=TRAIN, title=title)

        # Graphs and flat indexes have no lists, so parts cannot be merged.
        if not grows_in_parts(empty_index(config, keys.dim, keys.dtype.name)):
            return IndexPlan([training, IndexPart(WHOLE)], [IndexPart(WHOLE)])

        parts = _parts(keys, range(keys.shards))
        shards = [training, *parts, IndexPart(MERGE, phase=MERGE)]
        if not leaves_out(config, job.inputs):
            return IndexPlan(shards, parts)
        counts = ArrayLayout(COUNTS, (keys.rows,), "int32", rows_per_shard(4))
        return IndexPlan(shards, parts, counts=counts, arrays=[counts])

    def open(self, job: ShardJob[IndexConfig], plan: IndexPlan) -> OpenedKeys:
        return_large_blocks()
        return OpenedKeys(plan, _stored_keys(job), job.folder)

    def run_shard(
        self, job: ShardJob[IndexConfig], resources: OpenedKeys, shard: IndexPart
    ) -> ShardOutput:
        output = ShardOutput(job.folder)
        kept_keys = resources.plan.kept_keys
        if kept_keys is not None and shard.key in (TRAIN, MERGE):
            output.record |= _change(job, resources, shard, kept_keys, output)
        elif shard.key == TRAIN:
            build.train(job.config, resources.keys, output.add(TRAINED))
            if resources.plan.counts is not None:
                write_held_rows(job.config, job.inputs, output.add(SCRATCH_FILE))
        elif shard.key == WHOLE:
            build.build_whole(resources.trained(), resources.keys, output.add(INDEX_FILE))
        elif shard.key == MERGE:
            _merge(resources, output)
        else:
            path = output.add(_part_file(shard))
            output.record["keys"] = build.write_part(
                resources.trained(), resources.keys, shard.stored, path, resources.selects
            )
        return output

    def finish(self, job: Job[IndexConfig], plan: IndexPlan) -> dict[str, Any]:
        config = job.config
        path = job.folder / INDEX_FILE
        keys = _stored_keys(job)
        num_rows = None if plan.counts is None else int((_counts(job.folder) > 0).sum())
        # Missing keys would only lower recall unnoticed, so the number of keys is checked here.
        shape = (keys.rows, keys.dim)
        searcher = open_searcher(path, config.model_dump(), shape, num_rows=num_rows)
        described = described_keys(job.inputs["datastore"])
        kind, why = automatic_kind(described, config.largest_gigabytes)

        size = path.stat().st_size
        if plan.counts is not None:
            size += plan.counts.nbytes
        figures = _measured(job, searcher, keys) if config.recall else {}
        error = figures.pop("recall_error", {})
        held_rows = {} if num_rows is None else {"held": num_rows}
        return {
            "rows": keys.rows,
            **held_rows,
            "dim": keys.dim,
            "bytes": size,
            "bytes_per_key": round(size / keys.rows, 2),
            "lossless": searcher.lossless,
            "automatic": {"index": kind, "why": why},
            **figures,
            **compared(job, MERGE, figures.get("recall", {}), error),
        }


def _merge(resources: OpenedKeys, output: ShardOutput) -> None:
    """Write the index from its filled parts, and the counts of rows that some are left out of."""
    sources = [build.FilledLists.read(part) for part in resources.part_files]
    counts = resources.counts
    rows = resources.keys.rows if counts is None else int((counts > 0).sum())
    build.merge(resources.trained(), sources, rows, output.add(INDEX_FILE))

    layout = resources.plan.counts
    if layout is not None and counts is not None:
        for number in range(layout.shards):
            output.write(layout, number, counts[layout.rows(number)])


def _counts(folder: Path) -> np.ndarray:
    """Number of rows that each held row represents, 0 where one is left out, int32 [N]."""
    return map_arrays(folder / SCRATCH_FILE, 1)[0]


def _stored_keys(job: ShardJob[IndexConfig]) -> StoredKeys:
    return stored_keys(job.inputs["datastore"])


def _parts(keys: StoredKeys, shards: Sequence[int]) -> list[IndexPart]:
    """Parts of PART_BYTES of keys, from the shards that hold keys to add."""
    shard_bytes = keys.rows_per_shard * keys.dim * keys.dtype.itemsize
    shards_per_part = max(1, PART_BYTES // shard_bytes)
    parts = []
    for number, start in enumerate(range(0, len(shards), shards_per_part)):
        part_shards = shards[start : start + shards_per_part]
        parts.append(IndexPart(f"add-{number:06d}", part_shards))
    return parts


def _part_file(part: IndexPart) -> Path:
    return Path("scratch", f"{part.key}.lists")


def _measured(job: Job[IndexConfig], searcher: Searcher, keys: StoredKeys) -> dict[str, Any]:
    """Recall against exact search, and speed, with progress for the user."""
    queries = _sample(job, keys.rows)
    job.reporter.info(
        f"measuring recall with {queries:,} queries, each compared with {keys.rows:,} keys"
    )
    figures = measure(searcher, keys, queries, job.config.seed, job.reporter.progress)
    _warn_of_recall(job, figures["recall"])
    return figures


def _sample(job: Job[IndexConfig], rows: int) -> int:
    """Number of queries for measuring recall; for a changed index, in proportion to the added and
    removed keys.
    """
    number = min(job.config.recall, rows)
    if PREVIOUS not in job.inputs:
        return number
    # Unchanged keys are found as before, so recall can only change with the others.
    datastore = job.inputs["datastore"].metrics
    num_changed = datastore["added"] + datastore["forgotten"] + datastore["encoded_again"]
    share = num_changed / (rows + datastore["forgotten"])
    in_proportion = ceil(share * number)
    return min(number, max(FEWEST_QUERIES, in_proportion))


def _warn_of_recall(job: Job[IndexConfig], recall: Mapping[str, float]) -> None:
    k, lowest = min(recall.items(), key=lambda item: item[1])
    if lowest < 0.5:
        job.reporter.warning(
            f"Only {lowest:.0%} of the {k} nearest keys are found; more probe, or another index, finds more."
        )


def _change(
    job: ShardJob[IndexConfig],
    resources: OpenedKeys,
    shard: IndexPart,
    kept_keys: UnchangedKeys,
    output: ShardOutput,
) -> dict[str, float]:
    """Run the first or last step of a change: write the previous index without keys, or with the
    kept and new keys.
    """
    old = job.inputs[PREVIOUS].file(INDEX_FILE)
    if shard.key == TRAIN:
        write_emptied(old, kept_keys, output.add(TRAINED))
        return {}
    return merge_changed(
        old,
        resources.trained(),
        kept_keys,
        resources.part_files,
        resources.keys.rows,
        output.add(INDEX_FILE),
    )
