"""Evaluation with a neural cache against plain evaluation of the same tokens, and what a grid
costs.

    python -m tests.benchmarks.bench_cache [--backbone transformer|lstm --tokens 32768 --size 2000]
    python -m tests.benchmarks.bench_cache --memory [--size 100000]

Models with random weights: of the shape of `wikitext2-small`, or of `lstm-1024`. Plain and cached
evaluations take turns in one process, each a whole stage; the ratio is that of the median times,
`cpu_ratio` that of processor time, which other processes disturb less. `grid_share` is what tuning
ten θ and ten λ on as many tokens costs beside one more pass of the model, in processor time. With
`--memory` one evaluation runs in a process of its own, whose peak memory is told.
"""

import argparse
import json
import resource
import tempfile
from typing import Any

import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.benchmarks.artificial import VOCABULARY, Model, Tokens, artificial
from tests.benchmarks.timing import Seconds, evaluation_time, medians

LSTM_1024: dict[str, Any] = {
    "backbone": "lstm",
    "vocab_size": VOCABULARY,
    "layers": 1,
    "width": 1024,
    "tied": False,
}
THETAS = "0/0.01/0.02/0.03/0.05/0.08/0.1/0.2/0.3/0.5"
LAMBDAS = "0.02/0.05/0.08/0.1/0.15/0.2/0.25/0.3/0.4/0.5"


def prepare(store: Store, backbone: str, tokens: int) -> Artifact:
    """A model whose corpus has a test and a valid split of so many tokens."""
    corpus = artificial(
        store, Tokens(), {}, splits={"train": 1000, "valid": tokens, "test": tokens}
    )
    settings = {"model": LSTM_1024, "segment_length": 30} if backbone == "lstm" else {}
    return artificial(store, Model(), {"tokens": corpus}, **settings)


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        source = prepare(store, arguments.backbone, arguments.tokens)
        given = f"long:size={arguments.size},theta=0.05,lambda=0.2"
        kinds = {"plain": "none", "cache": given}
        times: dict[str, list[Seconds]] = {name: [] for name in kinds}
        for number in range(arguments.rounds + 1):
            for name, memory in kinds.items():
                taken = evaluation_time(store, source, memory, precision="fp32")
                if number:
                    times[name].append(taken)
        plain, cache = (medians(times[name]) for name in kinds)
        grid = f"long:size={arguments.size},theta={THETAS},lambda={LAMBDAS}"
        tuned = evaluation_time(store, source, grid, precision="fp32")
    return {
        "plain_tokens_per_second": round(arguments.tokens / plain.wall, 1),
        "cache_tokens_per_second": round(arguments.tokens / cache.wall, 1),
        "ratio": round(cache.wall / plain.wall, 3),
        "cpu_ratio": round(cache.cpu / plain.cpu, 3),
        "grid_share": round((tuned.cpu - cache.cpu - plain.cpu) / plain.cpu, 3),
        "threads": torch.get_num_threads(),
    }


def peak_memory(arguments: argparse.Namespace) -> dict[str, float]:
    """Peak memory of one evaluation in this process, in MB, and the size of the keys that the cache
    holds.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        source = prepare(store, arguments.backbone, arguments.tokens)
        memory = f"long:size={arguments.size},theta=0.05,lambda=0.2"
        taken = evaluation_time(store, source, memory, precision="fp32")
    width = 1024 if arguments.backbone == "lstm" else 256
    return {
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "cache_mb": round(min(arguments.size, arguments.tokens) * width * 4 / 2**20, 1),
        "tokens_per_second": round(arguments.tokens / taken.wall, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", choices=("transformer", "lstm"), default="transformer")
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    print(json.dumps(peak_memory(arguments) if arguments.memory else measure(arguments)))


if __name__ == "__main__":
    main()
