"""Two processes (`--workers 2`) against one, where each computes with one thread: wanted at least
1.6 on two cores.

    python -m tests.benchmarks.bench_workers --store STORE MODEL INDEX [--tokens 1048576 \\
        --scored 131072]

build-datastore of the first tokens of the train split, precompute-neighbors (k = 4) of as many of
each split of --queries, and evaluate (kNN-LM, k = 1,024) of the first --scored of test, each as a
whole stage, starting the processes included. One and two workers take turns; a line of JSON a
stage: medians in seconds of the clock, the ratio, and seconds of all processors, which say what the
second process costs. OMP_NUM_THREADS and the like are 1; nothing is written into the store.
"""

import os

if __name__ == "__main__":  # before libraries are loaded
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }

import argparse
import json
import resource
import statistics
import time
from collections.abc import Iterator
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Stage
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from tests.benchmarks.borrowed import borrowed, excerpt
from tests.benchmarks.timing import Seconds

WORKERS = (1, 2)


def processors() -> float:
    """Seconds that this process took, and those that it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def taken_by(
    stage: Stage[Any], config: Any, source: Artifact, tokens: Artifact, store: Store, workers: int
) -> Seconds:
    """What a stage takes; its artifact is forgotten."""
    references = {"source": source.reference, "tokens": tokens.reference}
    wall, cpu = time.perf_counter(), processors()
    made = make(stage, config, references, store, Execution("cpu", workers=workers)).artifact
    taken = Seconds(time.perf_counter() - wall, processors() - cpu)
    store.remove(made.reference)
    return taken


def measure(store: Store, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    model, index = store.get(arguments.model, "model"), store.get(arguments.index, "index")
    own, count, scored = model.input("tokens"), arguments.tokens, arguments.scored
    tokens = excerpt(store, own, train=count, test=count)
    fewer = excerpt(store, own, train=scored, test=scored)
    queries = tuple(arguments.queries.split(","))
    memory = (f"external:k={arguments.k},lambda=0.25,temperature=1",)
    stages: dict[str, tuple[Stage[Any], Any, Artifact, Artifact]] = {
        "build-datastore": (BuildDatastore(), DatastoreConfig(precision="fp32"), model, tokens),
        "precompute-neighbors": (
            PrecomputeNeighbors(),
            NeighborsConfig(queries=queries),
            index,
            tokens,
        ),
        "evaluate": (Evaluate(), EvaluateConfig(memory=memory, precision="fp32"), index, fewer),
    }
    for name in arguments.stages.split(","):
        times: dict[int, list[Seconds]] = {workers: [] for workers in WORKERS}
        for _ in range(arguments.rounds):
            for workers in WORKERS:
                times[workers].append(taken_by(*stages[name], store, workers))
        wall = {
            workers: statistics.median(one.wall for one in taken)
            for workers, taken in times.items()
        }
        cpu = {
            workers: statistics.median(one.cpu for one in taken) for workers, taken in times.items()
        }
        splits = {"build-datastore": ("train",), "precompute-neighbors": queries}.get(
            name, ("test",)
        )
        yield {
            "stage": name,
            "tokens": sum(stages[name][-1].metrics["splits"][split]["tokens"] for split in splits),
            "seconds": {workers: round(seconds, 2) for workers, seconds in wall.items()},
            "ratio": round(wall[WORKERS[0]] / wall[WORKERS[-1]], 2),
            "cpu": {workers: round(seconds, 2) for workers, seconds in cpu.items()},
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True)
    parser.add_argument("model")
    parser.add_argument("index")
    parser.add_argument(
        "--tokens", type=int, default=1 << 20, help="of each split, if it has as many"
    )
    parser.add_argument("--scored", type=int, default=1 << 17)
    parser.add_argument(
        "--queries",
        default="test",
        help="splits that precompute-neighbors asks for, as in train,test",
    )
    parser.add_argument("--k", type=int, default=1024, help="of evaluate")
    parser.add_argument("--stages", default="build-datastore,precompute-neighbors,evaluate")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with borrowed(arguments.store) as store:
        for line in measure(store, arguments):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
