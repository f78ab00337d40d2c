"""Stage pack-batches: tokens -> batches.

Finds the segments most similar to each segment of the training split. Then it orders all segments
so that similar ones follow each other. A shard looks up the matches of a range of segments. The
order is made from all matches.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.artifacts.arrays import ArrayLayout, rows_per_shard
from stages.artifacts.artifact import Artifact
from stages.artifacts.output import ShardOutput
from stages.artifacts.schema import Expected, Figures, Positive, Schema, between, offsets
from stages.artifacts.stage import Inputs, Job, Shard, ShardedStage, ShardJob, ShardPlan
from stages.artifacts.store import Store
from stages.errors import ArtifactError, DataError, UsageError
from stages.examples import PAIRS, STREAMS
from stages.lineage.corpus import require_split
from stages.numbers import rate
from stages.text.config import PackConfig

__all__ = ["PackBatches", "PackConfig"]

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SPLIT = "train"
SEGMENTS = {"fast": 4096, "rank-bm25": 128}
"""Segments of one shard, by engine."""
MANY = 20_000
"""Number of segments above which rank-bm25 takes hours."""


class BatchesFigures(Figures):
    """Metrics of packed batches."""

    segments: Positive


def batch_arrays(batches: Artifact, name: str) -> Expected | None:
    """The expected arrays: the order of the segments, and their offsets in the split."""
    segments, tokens = batches.metrics["segments"], batches.input("tokens")
    last = (
        tokens.metrics["splits"][SPLIT]["tokens"]
        if _is_pairs(tokens)
        else segments * batches.config["segment_length"]
    )
    return {
        "batches.zarr/order": Expected((segments,), ("int64",), _permutation),
        "batches.zarr/segment_offsets": Expected((segments + 1,), ("int64",), offsets(last)),
    }.get(name)


def _permutation(values: np.ndarray, start: int, rows: int) -> str | None:
    """Check for a permutation of 0 … rows - 1; None: it is one."""
    wrong = between(0, rows, "numbers")(values, start, rows)
    if wrong is None and len(np.unique(values)) != len(values):
        return "a number stands there twice"
    return wrong


@dataclass(frozen=True)
class SegmentRange(Shard):
    """Segments start .. stop - 1."""

    start: int
    stop: int

    @property
    def file(self) -> Path:
        """Scratch file of their matches, relative to the draft."""
        return Path("scratch", f"{self.key}.npz")


@dataclass(frozen=True)
class Plan(ShardPlan[SegmentRange]):
    """The number of segments, and of matches for each."""

    segments: int
    k: int


Search = Callable[[int, int], tuple[np.ndarray, np.ndarray]]
"""(start, stop) -> ids and scores of the matches of segments start .. stop - 1, the best first, [n,
k] each.
"""


class PackBatches(ShardedStage[PackConfig, Plan, Search, SegmentRange]):
    """Packs segments of the training split by BM25; role: `tokens`."""

    name = "pack-batches"
    kind = "batches"
    Config = PackConfig
    schema = Schema(BatchesFigures, batch_arrays)

    def inputs(self, config: PackConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        tokens = store.get(references["source"], "tokens")
        require_split(tokens, SPLIT)
        examples = tokens.metrics.get("examples", STREAMS)
        if examples == PAIRS:
            _require_sentences(config, tokens)
        elif examples == STREAMS:
            _require_segments(tokens, config.segment_length)
        else:
            raise ArtifactError(
                f"{tokens.reference} holds {examples}; segments can only be cut from streams of text."
            )
        if config.exclude == "document" and tokens.metrics["splits"][SPLIT]["documents"] < 2:
            raise DataError(
                f"Split {SPLIT!r} of {tokens.reference} is one document, and --exclude document packs segments of "
                "several; cut the text into documents (memlm tokenize --documents), or leave --exclude out."
            )
        return Inputs({"tokens": tokens})

    def plan(self, job: Job[PackConfig]) -> Plan:
        segments = whole_segments(job.config, job.inputs)
        if job.config.engine == "rank-bm25" and segments > MANY:
            job.reporter.warning(
                f"{segments:,} segments are many for rank-bm25, which scores all of them for each: this takes hours or "
                "days. Leave --engine out: the fast engine finds the same matches."
            )
        size = SEGMENTS[job.config.engine]
        shards = [
            SegmentRange(f"matches-{start // size:06d}", start, min(start + size, segments))
            for start in range(0, segments, size)
        ]
        return Plan(shards, segments, min(job.config.k, segments - 1))

    def open(self, job: ShardJob[PackConfig], plan: Plan) -> Search:
        from stages.text.bm25 import SCORINGS, Bm25Index, RankBm25, itself
        from stages.text.packing import sharing

        # a segment is most similar to itself, and then to others of its document
        hidden = sharing(_spans(job)) if job.config.exclude == "document" else itself(plan.segments)
        if job.config.engine == "fast":
            return partial(
                Bm25Index(_counts(job), SCORINGS[job.config.bm25], hidden).search, k=plan.k
            )
        offsets = _offsets(job)
        segments = np.split(np.asarray(_array(job, "ids")[: offsets[-1]]), offsets[1:-1])
        return partial(RankBm25(segments, hidden).search, k=plan.k)

    def run_shard(
        self, job: ShardJob[PackConfig], work: Search, shard: SegmentRange
    ) -> ShardOutput:
        started = time.perf_counter()
        output = ShardOutput(job.folder)
        ids, scores = work(shard.start, shard.stop)
        np.savez(output.add(shard.file), ids=ids, scores=scores)
        output.record["seconds"] = time.perf_counter() - started
        return output

    def finish(self, job: Job[PackConfig], plan: Plan) -> dict[str, Any]:
        from stages.text.packing import DocumentsApart, chain, overlap, same_document

        found = [np.load(job.folder / shard.file) for shard in plan.shards]
        ids, scores = (
            np.concatenate([matches[name] for matches in found]) for name in ("ids", "scores")
        )
        # chains begin at random segments; the same permutation is the baseline for the packing
        permutation = np.random.default_rng(job.config.seed).permutation(plan.segments)
        spans, offsets, counts = _spans(job), _offsets(job), _counts(job)
        apart = (
            DocumentsApart(spans, job.config.apart - 1)
            if job.config.exclude == "document"
            else None
        )
        packed = chain(ids, permutation, apart)
        for name, values in {"order": packed.order, "segment_offsets": offsets}.items():
            job.draft.write_whole(_layout(name, len(values)), values)
        followed = np.flatnonzero(packed.rank >= 0)
        links = scores[packed.order[followed], packed.rank[followed]].astype(np.float64)
        searched = sum(job.draft.record(shard.key)["seconds"] for shard in plan.shards)
        tokens = job.inputs["tokens"].metrics["splits"][SPLIT]["tokens"]
        return {
            "segments": plan.segments,
            "tokens_left_out": tokens - int(offsets[-1]),
            "terms": len(np.unique(counts.indices)),
            "hop_rate": len(links) / (plan.segments - 1),
            "mean_link_score": float(links.mean()) if len(links) else None,
            "token_overlap": overlap(counts, packed.order),
            "token_overlap_random": overlap(counts, permutation),
            "same_document": same_document(spans, packed.order),
            "segments_per_second": rate(plan.segments, searched),
        }


def _require_segments(tokens: Artifact, length: int) -> None:
    """Raises: DataError unless the training split has at least two segments."""
    count = tokens.metrics["splits"][SPLIT]["tokens"]
    if count < 2 * length:
        raise DataError(
            f"Split {SPLIT!r} of {tokens.reference} has {count} tokens, less than two segments of {length}; "
            "pack more text, or choose a smaller --segment-length."
        )


def _is_pairs(tokens: Artifact) -> bool:
    return bool(tokens.metrics.get("examples", STREAMS) == PAIRS)


def _require_sentences(config: PackConfig, tokens: Artifact) -> None:
    """Raises: UsageError if a segment length is set; DataError for fewer than two sentences."""
    if config.segment_length != PackConfig.model_fields["segment_length"].default:
        raise UsageError(
            f"{tokens.reference} holds pairs, whose sentences are packed: leave --segment-length out."
        )
    if tokens.metrics["splits"][SPLIT]["documents"] < 2:
        raise DataError(
            f"Split {SPLIT!r} of {tokens.reference} is one sentence: there is nothing to pack."
        )


def _array(job: ShardJob[PackConfig], name: str) -> Any:
    return job.inputs["tokens"].zarr("tokens.zarr")[f"{SPLIT}/{name}"]


def _offsets(job: ShardJob[PackConfig]) -> np.ndarray:
    """Offsets of the segments, int64 [S + 1]. Segments are the sentences of pairs, or else have one
    length.
    """
    if _is_pairs(job.inputs["tokens"]):
        return np.asarray(_array(job, "doc_offsets")[:])
    return (
        np.arange(whole_segments(job.config, job.inputs) + 1, dtype=np.int64)
        * job.config.segment_length
    )


def _spans(job: ShardJob[PackConfig]) -> np.ndarray:
    """Numbers of the first and the last document of each segment, int64 [S, 2]."""
    from stages.text.packing import document_spans

    return document_spans(np.asarray(_array(job, "doc_offsets")[:]), _offsets(job))


def _counts(job: ShardJob[PackConfig]) -> "csr_array":
    """Counts of each term in each segment, [S, V]."""
    from stages.text.bm25 import term_counts

    return term_counts(
        _array(job, "ids"), _offsets(job), job.inputs["tokens"].metrics["vocabulary_size"]
    )


def whole_segments(config: PackConfig, inputs: Inputs) -> int:
    """Number of whole segments in the split, or of sentences if it holds pairs, from the manifest."""
    split = inputs["tokens"].metrics["splits"][SPLIT]
    if _is_pairs(inputs["tokens"]):
        return int(split["documents"])
    return int(split["tokens"]) // config.segment_length


def array_layouts(segments: int) -> dict[str, ArrayLayout]:
    """Layouts of the arrays of packed batches, by name."""
    rows = {"order": segments, "segment_offsets": segments + 1}
    return {f"batches.zarr/{name}": _layout(name, count) for name, count in rows.items()}


def _layout(name: str, rows: int) -> ArrayLayout:
    """Layout of an int64 array."""
    return ArrayLayout(
        f"batches.zarr/{name}", (rows,), np.int64, rows_per_shard(np.dtype(np.int64).itemsize)
    )
