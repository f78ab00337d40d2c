"""Search by lists among keys that fill a GPU, and how long it would take to find the neighbours of
more.

    python -m tests.benchmarks.bench_many_keys [--keys 16777216 67108864 --dim 512 --length 6287 \\
        --wanted 103000000]

Keys are made as in `bench_device_search`, in lists of one length on average, 64 of which are read;
queries come in the blocks of `precompute-neighbors`. A row for each number of keys, as JSON:
queries/s, and minutes for the neighbours of all keys; the share of queries that find the key that
they were made from; the peak of the GPU's memory. The last row is not measured: seconds of a query
are taken to grow with the keys as between the sizes before.
"""

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from stages.models.computing import resolve_device
from tests.benchmarks.bench_device_search import Made, device_name
from tests.benchmarks.bench_machine import finish
from tests.benchmarks.search_arithmetic import queries_at_once


def extrapolated(seconds: Mapping[int, float], keys: int) -> float:
    """Seconds of a query among more keys: on the line through the two largest sizes; never less
    than the last.

    >>> extrapolated({16: 2.0, 64: 5.0}, 112)
    8.0
    """
    (few, first), (many, last) = sorted(seconds.items())[-2:]
    return max(last, last + (last - first) * (keys - many) / (many - few))


def measure(arguments: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """A row for each number of keys, and one for those that are wanted."""
    rows, seconds = [], dict[int, float]()
    for keys in arguments.keys:
        rows.append(_searched(arguments, keys, device))
        seconds[keys] = 1 / rows[-1]["queries"]
    wanted = extrapolated(seconds, arguments.wanted)
    return [*rows, _row(f"{arguments.wanted:,} keys, extrapolated", arguments.wanted, wanted)]


def _searched(arguments: argparse.Namespace, keys: int, device: torch.device) -> dict[str, Any]:
    at_once = queries_at_once(arguments.dim, arguments.k)
    if arguments.queries:
        at_once = min(at_once, arguments.queries)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    made = Made(
        keys, arguments.dim, max(1, keys // arguments.length), arguments.blocks * at_once, device
    )
    searcher = made.searcher(device_name(device))
    searcher.search(made.queries[:at_once], arguments.k)  # brings the keys to the GPU
    finish(device)
    started = time.perf_counter()
    found = [
        searcher.search(part, arguments.k)[0] for part in np.split(made.queries, arguments.blocks)
    ]
    finish(device)
    row = _row(f"{keys:,} keys", keys, (time.perf_counter() - started) / len(made.queries))
    row["own"] = float((np.concatenate(found)[:, 0] == made.rows).mean())
    if device.type == "cuda":
        row["peak"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
    return row


def _row(name: str, keys: int, seconds: float) -> dict[str, Any]:
    return {"name": name, "queries": 1 / seconds, "minutes": keys * seconds / 60}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, nargs="+", default=[1 << 24, 1 << 26])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument(
        "--length", type=int, default=6287, help="keys of a list: those of 103 million in 16,384"
    )
    parser.add_argument(
        "--queries", type=int, help="of a block (as many as precompute-neighbors has)"
    )
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--wanted", type=int, default=103_000_000)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    print(json.dumps({"rows": measure(arguments, resolve_device(arguments.device))}))


if __name__ == "__main__":
    main()
