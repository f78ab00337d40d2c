"""The work of pack-batches: similar segments follow each other.

A shard looks up the matches of a range of segments. The order is made from all matches.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, Shard, ShardedWork, ShardJob, ShardPlan
from stages.numbers import rate
from stages.packing.segments import SPLIT, array_layout, is_pairs, whole_segments
from stages.text.bm25 import SCORINGS, Bm25Index, itself, term_counts
from stages.text.config import PackConfig
from stages.text.packing import (
    DocumentsApart,
    chain,
    document_spans,
    overlap,
    same_document,
    sharing,
)
from stages.text.rank_bm25 import RankBm25

SEGMENTS = {"fast": 4096, "rank-bm25": 128}
"""Segments of one shard, by engine."""
MANY = 20_000
"""Number of segments above which rank-bm25 takes hours."""


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
class PackPlan(ShardPlan[SegmentRange]):
    """The number of segments, and of matches for each."""

    segments: int
    k: int


Search = Callable[[int, int], tuple[np.ndarray, np.ndarray]]
"""(start, stop) -> ids and scores of the matches of segments start .. stop - 1, the best first, [n,
k] each.
"""


class PackWork(ShardedWork[PackConfig, PackPlan, Search, SegmentRange]):
    """Packs segments of the training split by BM25; role: `tokens`."""

    def plan(self, job: Job[PackConfig]) -> PackPlan:
        segments = whole_segments(job.config, job.inputs)
        if job.config.engine == "rank-bm25" and segments > MANY:
            job.reporter.warning(
                f"{segments:,} segments are many for rank-bm25, which scores all of them for each: this takes hours or "
                "days. Leave --engine out: the fast engine finds the same matches."
            )
        size = SEGMENTS[job.config.engine]
        shards = []
        for number, start in enumerate(range(0, segments, size)):
            stop = min(start + size, segments)
            shards.append(SegmentRange(f"matches-{number:06d}", start, stop))
        # A segment has as many matches as there are others.
        k = min(job.config.k, segments - 1)
        return PackPlan(shards, segments, k)

    def open(self, job: ShardJob[PackConfig], plan: PackPlan) -> Search:
        # A segment is most similar to itself, and then to others of its document.
        hides_document = job.config.exclude == "document"
        hidden = sharing(_spans(job)) if hides_document else itself(plan.segments)

        if job.config.engine == "fast":
            scoring = SCORINGS[job.config.bm25]
            index = Bm25Index(_counts(job), scoring, hidden)
            return partial(index.search, k=plan.k)

        offsets = _offsets(job)
        tokens = np.asarray(_array(job, "ids")[: offsets[-1]])
        segments = np.split(tokens, offsets[1:-1])
        rank_index = RankBm25(segments, hidden)
        return partial(rank_index.search, k=plan.k)

    def run_shard(
        self, job: ShardJob[PackConfig], resources: Search, shard: SegmentRange
    ) -> ShardOutput:
        started = time.perf_counter()
        output = ShardOutput(job.folder)
        ids, scores = resources(shard.start, shard.stop)
        np.savez(output.add(shard.file), ids=ids, scores=scores)
        output.record["seconds"] = time.perf_counter() - started
        return output

    def finish(self, job: Job[PackConfig], plan: PackPlan) -> dict[str, Any]:
        shard_matches = [np.load(job.folder / shard.file) for shard in plan.shards]
        ids = np.concatenate([matches["ids"] for matches in shard_matches])
        scores = np.concatenate([matches["scores"] for matches in shard_matches])  # [S, k] both
        spans = _spans(job)
        offsets = _offsets(job)
        counts = _counts(job)

        # Chains begin at random segments; the same permutation is the baseline for the packing.
        generator = np.random.default_rng(job.config.seed)
        permutation = generator.permutation(plan.segments)
        documents = None
        if job.config.exclude == "document":
            documents = DocumentsApart(spans, job.config.apart - 1)
        packed = chain(ids, permutation, documents)
        for name, values in {"order": packed.order, "segment_offsets": offsets}.items():
            job.draft.write_whole(array_layout(name, len(values)), values)

        # Segments that follow a match have its rank; the others begin a chain.
        linked = np.flatnonzero(packed.rank >= 0)
        linked_segments = packed.order[linked]
        link_scores = scores[linked_segments, packed.rank[linked]].astype(np.float64)

        seconds = sum(job.draft.record(shard.key)["seconds"] for shard in plan.shards)
        tokens = job.inputs["tokens"].metrics["splits"][SPLIT]["tokens"]
        return {
            "segments": plan.segments,
            "tokens_left_out": tokens - int(offsets[-1]),
            "terms": len(np.unique(counts.indices)),
            "hop_rate": len(linked) / (plan.segments - 1),
            "mean_link_score": float(link_scores.mean()) if len(linked) else None,
            "token_overlap": overlap(counts, packed.order),
            "token_overlap_random": overlap(counts, permutation),
            "same_document": same_document(spans, packed.order),
            "segments_per_second": rate(plan.segments, seconds),
        }


def _array(job: ShardJob[PackConfig], name: str) -> Any:
    """An array of the training split, read when sliced."""
    return job.inputs["tokens"].zarr("tokens.zarr")[f"{SPLIT}/{name}"]


def _offsets(job: ShardJob[PackConfig]) -> np.ndarray:
    """Offsets of the segments, int64 [S + 1]. Segments are the sentences of pairs, or else have one
    length.
    """
    if is_pairs(job.inputs["tokens"]):
        return np.asarray(_array(job, "doc_offsets")[:])
    segments = whole_segments(job.config, job.inputs)
    return np.arange(segments + 1, dtype=np.int64) * job.config.segment_length


def _spans(job: ShardJob[PackConfig]) -> np.ndarray:
    """Numbers of the first and the last document of each segment, int64 [S, 2]."""
    return document_spans(np.asarray(_array(job, "doc_offsets")[:]), _offsets(job))


def _counts(job: ShardJob[PackConfig]) -> csr_array:
    """Counts of each term in each segment, [S, V]."""
    vocabulary_size = job.inputs["tokens"].metrics["vocabulary_size"]
    return term_counts(_array(job, "ids"), _offsets(job), vocabulary_size)
