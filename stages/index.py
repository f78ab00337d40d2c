"""Stage build-index: datastore -> index; tokens -> index of exact matches
(`stages.suffixes.indexing`).

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
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import KINDS, PREVIOUS
from stages.artifacts.output import ShardOutput
from stages.artifacts.schema import Count, Expected, Figures, Positive, Schema, Share, between
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage, ShardJob, ShardPlan
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.lineage.indexes import (
    COUNTS,
    NEIGHBORS,
    described_keys,
    exact_index_before,
    index_before,
    inputs_of_some_rows,
)
from stages.search import EXACT
from stages.search.automatic import automatic_kind, check_keys, cost_in_words, resolve
from stages.search.config import IndexConfig
from stages.suffixes.indexing import TEXT, ExactIndex, context_arrays

if TYPE_CHECKING:
    import numpy as np

    from stages.search.keys import StoredKeys
    from stages.search.searcher import Searcher
    from stages.updating.change import UnchangedKeys

__all__ = ["BuildIndex", "IndexConfig"]

INDEX_FILE = "index.faiss"
TRAINED = Path("scratch/trained.faiss")
TRAIN, MERGE, WHOLE = "train", "merge", "whole"
PART_BYTES = 64 << 20
"""Bytes of stored keys in one part."""
FEWEST_QUERIES = 100
"""Fewest queries for measuring the recall of a changed index."""


Number = Annotated[str, Field(pattern="^[0-9]{1,18}$")]


class IndexFigures(Figures):
    """Metrics of an index."""

    rows: Positive
    held: Positive | None = None
    """Number of rows whose keys the index holds, if some were merged or left out."""
    dim: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    lossless: bool | None = None
    documents: Count | None = None
    """Number of documents; only for an exact index, which has no keys."""
    bytes: Count
    recall_by_probe: dict[Number, dict[Number, Share]] | None = None

    @model_validator(mode="after")
    def _of_keys(self) -> Self:
        if self.documents is None and None in (self.dim, self.lossless):
            raise ValueError("dim and lossless are missing of an index of keys")
        return self


@dataclass(frozen=True)
class Part(Shard):
    """A step of the work; `stored`: numbers of the datastore's shards that it adds."""

    stored: Sequence[int] = ()


@dataclass(frozen=True)
class Plan(ShardPlan[Part]):
    """The parts in which keys are added; a single one, WHOLE, if parts cannot be merged.

    `kept`: the keys that the previous index already has; None: there is no previous index.
    """

    parts: Sequence[Part]
    kept: "UnchangedKeys | None" = None
    counts: ArrayLayout | None = None
    """Layout of the number of rows that each row stands for; None: all rows are held."""


@dataclass(frozen=True)
class Work:
    """Everything that computing parts needs."""

    plan: Plan
    keys: "StoredKeys"
    folder: Path

    def trained(self) -> Any:
        """The trained, empty index from the first step."""
        from stages.search.open import read_index

        return read_index(self.folder / TRAINED)

    @cached_property
    def counts(self) -> "np.ndarray | None":
        """Number of rows that each row stands for, as the first step chose; None: all rows are
        held.
        """
        return None if self.plan.counts is None else _counts(self.folder)

    @property
    def wanted(self) -> "Callable[[np.ndarray], np.ndarray] | None":
        """Gives the mask of the rows that are added; None: all are."""
        counts = self.counts
        if counts is not None:
            return lambda rows: counts[rows] > 0  # of the mapped file only these rows
        return None if self.plan.kept is None else self.plan.kept.are_new

    @property
    def part_files(self) -> list[Path]:
        return [self.folder / _part_file(part) for part in self.plan.parts]


class VectorIndex(ShardedStage[IndexConfig, Plan, Work, Part]):
    """Indexes a datastore's keys; roles: `datastore`, and `previous` for an index that is changed."""

    name = "build-index"
    kind = "index"
    Config = IndexConfig

    def inputs(self, config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        if config.split is not None:
            raise UsageError(
                "--split is of --index exact: a datastore knows the split that it is of."
            )
        if store.open(references["source"]).kind == "tokens":
            raise ArtifactError(
                f"{references['source']} is of kind tokens, whose contexts --index {EXACT} sorts; other kinds of index "
                f"are of keys: needed here: datastore (memlm {KINDS['datastore'].command})."
            )
        datastore = store.get(references["source"], "datastore")
        named, merge = references.get("update"), references.get("merge")
        if merge is not None or config.keep < 1:
            return inputs_of_some_rows(config, datastore, named, merge, store)
        previous = index_before(datastore, config, named, store)
        if previous is None:
            return Inputs({"datastore": datastore})
        from stages.updating.changed_index import can_become, why_not

        if not can_become(previous, datastore):
            if named is not None:
                raise UsageError(
                    f"{previous.reference} cannot be changed in place ({why_not(previous, datastore)})."
                )
            return Inputs({"datastore": datastore})
        return Inputs({"datastore": datastore, PREVIOUS: previous})

    def resolve(self, config: IndexConfig, inputs: Inputs, execution: Execution) -> IndexConfig:
        keys = described_keys(inputs["datastore"])
        check_keys(keys.rows)
        if PREVIOUS in inputs:
            from stages.updating.changed_index import settings_as_before

            execution.reporter.info(
                f"changing {inputs[PREVIOUS].reference} (to build anew: --update none)"
            )
            return settings_as_before(config, inputs[PREVIOUS].config)
        resolved = resolve(config, keys)
        if _leaves_out(config, inputs):
            from stages.lineage.held_rows import settings_of_some_rows

            resolved = settings_of_some_rows(resolved, keys)
        if config.index == "auto":
            kind, why = automatic_kind(keys, config.largest_gigabytes)
            execution.reporter.info(
                f"index {kind}: {why}. It costs {cost_in_words(resolved, keys)}"
            )
        return resolved

    def plan(self, job: Job[IndexConfig]) -> Plan:
        from stages.search.build import grows_in_parts
        from stages.search.factory import empty_index

        keys = _stored_keys(job)
        if PREVIOUS in job.inputs:
            from stages.updating.change import unchanged_keys

            kept = unchanged_keys(job.inputs["datastore"])
            parts = _parts(keys, kept.shards_of_new(keys.rows, keys.rows_per_shard))
            return Plan([Part(TRAIN, phase=TRAIN), *parts, Part(MERGE, phase=MERGE)], parts, kept)
        config, title = job.config, None
        if config.train_keys:
            what = "codes" if config.lists is None else f"{config.lists:,} lists"
            title = f"learning {what} from {config.train_keys:,} keys (k-means)"
        training = Part(TRAIN, phase=TRAIN, title=title)
        # graphs and flat indexes have no lists, so parts cannot be merged
        if not grows_in_parts(empty_index(config, keys.dim, keys.dtype.name)):
            return Plan([training, Part(WHOLE)], [Part(WHOLE)])
        parts = _parts(keys, range(keys.shards))
        shards = [training, *parts, Part(MERGE, phase=MERGE)]
        if not _leaves_out(config, job.inputs):
            return Plan(shards, parts)
        counts = ArrayLayout(COUNTS, (keys.rows,), "int32", rows_per_shard(4))
        return Plan(shards, parts, counts=counts, arrays=[counts])

    def open(self, job: ShardJob[IndexConfig], plan: Plan) -> Work:
        from stages.machine import return_large_blocks

        return_large_blocks()
        return Work(plan, _stored_keys(job), job.folder)

    def run_shard(self, job: ShardJob[IndexConfig], work: Work, shard: Part) -> ShardOutput:
        from stages.search import build

        output, kept = ShardOutput(job.folder), work.plan.kept
        if kept is not None and shard.key in (TRAIN, MERGE):
            output.record |= _change(job, work, shard, kept, output)
        elif shard.key == TRAIN:
            build.train(job.config, work.keys, output.add(TRAINED))
            if work.plan.counts is not None:
                from stages.lineage.held_rows import write_held_rows
                from stages.search.merging import SCRATCH_FILE

                write_held_rows(job.config, job.inputs, output.add(SCRATCH_FILE))
        elif shard.key == WHOLE:
            build.build_whole(work.trained(), work.keys, output.add(INDEX_FILE))
        elif shard.key == MERGE:
            sources = [build.FilledLists.read(part) for part in work.part_files]
            layout, counts = work.plan.counts, work.counts
            rows = work.keys.rows if counts is None else int((counts > 0).sum())
            build.merge(work.trained(), sources, rows, output.add(INDEX_FILE))
            if layout is not None and counts is not None:
                for number in range(layout.shards):
                    output.write(layout, number, counts[layout.rows(number)])
        else:
            path = output.add(_part_file(shard))
            output.record["keys"] = build.write_part(
                work.trained(), work.keys, shard.stored, path, work.wanted
            )
        return output

    def finish(self, job: Job[IndexConfig], plan: Plan) -> dict[str, Any]:
        from stages.search.open import open_searcher
        from stages.updating.changed_index import compared

        config, path, keys = job.config, job.folder / INDEX_FILE, _stored_keys(job)
        held = None if plan.counts is None else int((_counts(job.folder) > 0).sum())
        # missing keys would only lower recall unnoticed, so the number of keys is checked here
        searcher = open_searcher(path, config.model_dump(), (keys.rows, keys.dim), held=held)
        kind, why = automatic_kind(
            described_keys(job.inputs["datastore"]), config.largest_gigabytes
        )
        size = path.stat().st_size + (0 if plan.counts is None else plan.counts.nbytes)
        figures = _measured(job, searcher, keys) if config.recall else {}
        error = figures.pop("recall_error", {})
        return {
            "rows": keys.rows,
            **({} if held is None else {"held": held}),
            "dim": keys.dim,
            "bytes": size,
            "bytes_per_key": round(size / keys.rows, 2),
            "lossless": searcher.lossless,
            "automatic": {"index": kind, "why": why},
            **figures,
            **compared(job, MERGE, figures.get("recall", {}), error),
        }


def _arrays(index: Artifact, name: str) -> Expected | None:
    """The expected arrays: contexts of an exact index, counts of an index that leaves rows out."""
    if name != COUNTS:
        return context_arrays(index, name)
    return Expected(
        (index.metrics["rows"],),
        ("int32",),
        between(0, index.metrics["rows"] + 1, "numbers of rows"),
    )


class BuildIndex(ShardedStage[IndexConfig, Any, Any, Any]):
    """Indexes the keys of a datastore or, with `--index exact`, the contexts of a text."""

    name = "build-index"
    kind = "index"
    Config = IndexConfig
    schema = Schema(IndexFigures, _arrays)

    def inputs(self, config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        if config.index == EXACT and references.get("merge") is not None:
            raise UsageError(f"--merge means nothing to an {EXACT!r} index: leave it out.")
        read = _kind(config).inputs(config, references, store)
        before = (
            None
            if config.index != EXACT
            else exact_index_before(read[TEXT], references.get("update"), store)
        )
        return read if before is None else Inputs({**read.artifacts, PREVIOUS: before})

    def resolve(self, config: IndexConfig, inputs: Inputs, execution: Execution) -> IndexConfig:
        return _kind(config).resolve(config, inputs, execution)

    def plan(self, job: Job[IndexConfig]) -> Any:
        return _kind(job.config).plan(job)

    def open(self, job: ShardJob[IndexConfig], plan: Any) -> Any:
        return _kind(job.config).open(job, plan)

    def run_shard(self, job: ShardJob[IndexConfig], work: Any, shard: Any) -> ShardOutput:
        return _kind(job.config).run_shard(job, work, shard)

    def finish(self, job: Job[IndexConfig], plan: Any) -> dict[str, Any]:
        return _kind(job.config).finish(job, plan)


def _kind(config: IndexConfig) -> ShardedStage[IndexConfig, Any, Any, Any]:
    return ExactIndex() if config.index == EXACT else VectorIndex()


def _counts(folder: Path) -> "np.ndarray":
    from stages.array_files import map_arrays
    from stages.search.merging import SCRATCH_FILE

    return map_arrays(folder / SCRATCH_FILE, 1)[0]


def _stored_keys(job: ShardJob[IndexConfig]) -> "StoredKeys":
    from stages.lineage.rows import stored_keys

    return stored_keys(job.inputs["datastore"])


def _parts(keys: "StoredKeys", shards: Sequence[int]) -> list[Part]:
    """Parts of PART_BYTES of keys, from the shards that hold keys to add."""
    shard_bytes = keys.rows_per_shard * keys.dim * keys.dtype.itemsize
    together = max(1, PART_BYTES // shard_bytes)
    starts = range(0, len(shards), together)
    return [
        Part(f"add-{n:06d}", shards[start : start + together]) for n, start in enumerate(starts)
    ]


def _part_file(part: Part) -> Path:
    return Path("scratch", f"{part.key}.lists")


def _measured(job: Job[IndexConfig], searcher: "Searcher", keys: "StoredKeys") -> dict[str, Any]:
    """Recall against exact search, and speed, with progress for the user."""
    from stages.search.quality import measure

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
    asked = min(job.config.recall, rows)
    if PREVIOUS not in job.inputs:
        return asked
    datastore = job.inputs["datastore"].metrics
    changed = datastore["added"] + datastore["forgotten"] + datastore["encoded_again"]
    share = changed / (rows + datastore["forgotten"])
    # unchanged keys are found as before, so recall can only change with the others
    return min(asked, max(FEWEST_QUERIES, ceil(share * asked)))


def _warn_of_recall(job: Job[IndexConfig], recall: Mapping[str, float]) -> None:
    k, lowest = min(recall.items(), key=lambda item: item[1])
    if lowest < 0.5:
        job.reporter.warning(
            f"Only {lowest:.0%} of the {k} nearest keys are found; more probe, or another index, finds more."
        )


def _leaves_out(config: IndexConfig, inputs: Inputs) -> bool:
    return config.keep < 1 or NEIGHBORS in inputs


def _change(
    job: ShardJob[IndexConfig], work: Work, shard: Part, kept: "UnchangedKeys", output: ShardOutput
) -> dict[str, float]:
    """Run the first or last step of a change: write the previous index without keys, or with the
    kept and new keys.
    """
    from stages.search.change import merge_changed, write_emptied

    old = job.inputs[PREVIOUS].file(INDEX_FILE)
    if shard.key == TRAIN:
        write_emptied(old, kept, output.add(TRAINED))
        return {}
    return merge_changed(
        old, work.trained(), kept, work.part_files, work.keys.rows, output.add(INDEX_FILE)
    )
