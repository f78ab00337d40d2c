"""pack-batches: a query against rank-bm25's, the whole stage, and how both grow.

    python -m tests.benchmarks.bench_packing [TEXT…]
    python -m tests.benchmarks.bench_packing --grow 12500 25000 50000 [--measured 512]

With TEXT (tokenised by words; default: `builtin:pydocs`), the text is cut into 10,000 segments. Ours looks up the 20
best of every segment, with all threads; rank-bm25 those of a sample; both are asked in okapi's variant, and must agree.
Then `pack-batches --segment-length 512` of the same text in a process of its own: seconds and peak memory.

With --grow, artificial text of so many segments of 512 tokens, drawn by Zipf's law from 267,735 words: memory of the
index, and time of a query, measured on some of them.

Times of queries and indexes are those of the processor, all threads together, so that a busy machine changes little.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from rank_bm25 import BM25Okapi

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.pack import PackBatches, PackConfig
from stages.text.bm25 import SCORINGS, Bm25Index, term_counts
from stages.tokenize import Tokenize, TokenizeConfig

SEGMENTS, LONG, K = 10_000, 512, 20
WORDS = 267_735
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", default=["builtin:pydocs"])
    parser.add_argument("--sample", type=int, default=20, help="queries that rank-bm25 answers")
    parser.add_argument("--grow", type=int, nargs="*", help="numbers of artificial segments")
    parser.add_argument("--measured", type=int, default=512, help="queries of an artificial text")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(ONE[options.one[0]](options.one[1], options.measured)))
    elif options.grow:
        for segments in options.grow:
            print(f"{segments:,} segments: {alone('grow', segments, options.measured)}")
    else:
        with tempfile.TemporaryDirectory() as folder:
            config = TokenizeConfig.model_validate({"tokenizer": "word"})
            store = Store(Path(folder))
            tokens = make(Tokenize(), config, {"train": options.texts}, store, Execution()).artifact
            against_rank_bm25(tokens, options.sample)
            print(f"pack-batches, segments of {LONG}: {alone('pack', tokens.path, options.measured)}")


def against_rank_bm25(tokens: Artifact, sample: int) -> None:
    ids = np.asarray(tokens.zarr("tokens.zarr")["train/ids"])
    length = len(ids) // SEGMENTS
    ids = ids[: length * SEGMENTS]
    counts = term_counts(ids, length, tokens.metrics["vocabulary_size"])
    index, seconds = timed(lambda: Bm25Index(counts, SCORINGS["okapi"]))
    (found, _), taken = timed(lambda: index.search(0, SEGMENTS, K))
    ours = taken / SEGMENTS
    documents = ids.reshape(-1, length).tolist()
    bm25 = BM25Okapi(documents)
    queries = np.random.default_rng(0).choice(SEGMENTS, sample, replace=False)
    theirs = 0.0
    for query in queries:
        scores, taken = timed(lambda query=query: bm25.get_scores(documents[query]))
        theirs += taken / sample
        scores[query] = -np.inf
        best = np.argsort(-scores.astype(np.float32), kind="stable")[:K]
        assert best.tolist() == found[query].tolist(), query
    print(f"{SEGMENTS:,} segments of {length}: index {seconds:.1f} s, {ours * 1e3:.3f} ms a query")
    print(f"rank-bm25 {theirs * 1e3:.0f} ms a query, {theirs / ours:,.0f} times as much; same {K} best of {sample}")


def timed(work: Callable[[], T], clock: Callable[[], float] = time.process_time) -> tuple[T, float]:
    """What some work returns, and the seconds that it takes."""
    began = clock()
    return work(), clock() - began


def alone(what: str, argument: object, measured: int) -> str:
    """Figures of one measurement in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_packing", "--one", what, str(argument)]
    done = subprocess.run([*command, "--measured", str(measured)], check=True, capture_output=True, text=True)
    return ", ".join(f"{name} {value:,.4g}" for name, value in json.loads(done.stdout).items())


def pack(tokens: str, measured: int) -> dict[str, float]:
    """Seconds and peak MB of the stage, with its other figures."""
    store = Store(Path(tokens).parents[1])
    config = PackConfig(segment_length=LONG)
    outcome, seconds = timed(
        lambda: make(PackBatches(), config, {"source": tokens}, store, Execution()), time.perf_counter
    )
    return {"seconds": seconds, "peak_mb": peak_mb(), **outcome.artifact.metrics}


def grow(segments: str, measured: int) -> dict[str, float]:
    """Peak MB of an index of so many artificial segments and of its search, and milliseconds a query."""
    steps = np.cumsum(1 / np.arange(1, WORDS + 1))
    random = np.random.default_rng(0)
    ids = np.empty(int(segments) * LONG, np.uint32)
    for block in np.array_split(ids, 64):
        block[:] = np.searchsorted(steps, random.random(len(block)) * steps[-1])
    counts, counting = timed(lambda: term_counts(ids, LONG, WORDS))
    index, building = timed(lambda: Bm25Index(counts, SCORINGS["lucene"]))
    _, taken = timed(lambda: index.search(0, measured, K))
    terms = counts.nnz / int(segments)
    return {
        "terms_a_segment": terms,
        "ids_mb": ids.nbytes / 1e6,
        "peak_mb": peak_mb(),
        "index_seconds": counting + building,
        "ms_a_query": 1e3 * taken / measured,
    }


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


ONE = {"pack": pack, "grow": grow}


if __name__ == "__main__":
    main()
