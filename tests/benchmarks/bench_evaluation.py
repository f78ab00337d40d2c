"""Evaluation with stored neighbours, k = 1,024, against plain evaluation of the same tokens.

    python -m tests.benchmarks.bench_evaluation [--tokens 32768 --k 1024 --precision fp32]

A model of the shape of `wikitext2-small`, two million rows, random neighbours: what is read and
computed is what real ones cost. Both evaluations take turns in one process, each a whole stage from
opening the artifacts to the published report; the ratio is that of the median times. `cpu_ratio` is
the same of processor time, which other processes on the machine disturb less. The time of tuning λ
and τ on as many tokens is told beside it.
"""

import argparse
import json
import tempfile

import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.benchmarks.artificial import Datastore, Index, Model, Neighbors, Tokens, artificial
from tests.benchmarks.timing import Seconds, evaluation_time, medians


def prepare(store: Store, tokens: int, k: int, rows: int) -> Artifact:
    """Neighbours of a test and a valid split of so many tokens."""
    splits = {"train": 1000, "valid": tokens, "test": tokens}
    corpus = artificial(store, Tokens(), {}, splits=splits)
    model = artificial(store, Model(), {"tokens": corpus})
    datastore = artificial(store, Datastore(), {"encoder": model, "corpus": corpus}, rows=rows)
    index = artificial(store, Index(), {"datastore": datastore}, rows=rows)
    found = {"valid": tokens, "test": tokens}
    return artificial(
        store, Neighbors(), {"index": index, "queries": corpus}, splits=found, k=k, rows=rows
    )


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        source = prepare(store, arguments.tokens, arguments.k, arguments.rows)
        given = f"external:k={arguments.k},lambda=0.25,temperature=1"
        kinds = {"plain": "none", "memory": given}
        times: dict[str, list[Seconds]] = {name: [] for name in kinds}
        for number in range(arguments.rounds + 1):
            for name, memory in kinds.items():
                taken = evaluation_time(store, source, memory, precision=arguments.precision)
                if number:
                    times[name].append(taken)
        plain, memory = (medians(times[name]) for name in kinds)
        tuned = evaluation_time(store, source, "knn-lm", precision=arguments.precision)
    return {
        "plain_tokens_per_second": round(arguments.tokens / plain.wall, 1),
        "memory_tokens_per_second": round(arguments.tokens / memory.wall, 1),
        "ratio": round(plain.wall / memory.wall, 3),
        "cpu_ratio": round(plain.cpu / memory.cpu, 3),
        "tuning_cpu_seconds": round(tuned.cpu - memory.cpu - plain.cpu, 2),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--k", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=2_088_628)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=5)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
