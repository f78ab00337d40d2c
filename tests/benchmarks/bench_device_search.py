"""Search on a GPU beside the plainest search there, one product with all keys and `topk`, and beside the CPU.

    python -m tests.benchmarks.bench_device_search [--keys 524288 --lists 1024 --queries 32768 --k 4 64 1024]

Keys are made around random centres, in lists around some of them, 64 of which are read. Told of each k: queries/s of
the plain search, which is exact; of ours with lists and without; the share of its neighbours that are found;
the peak of the GPU's memory; and how many ids with lists are those that the CPU finds for a few queries.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import faiss
import numpy as np
import torch

from stages.models.devices import resolve_device
from stages.search.exact import ExactSearcher
from stages.search.keys import StoredKeys
from stages.search.open import searcher_of
from stages.search.recall import recall
from stages.speed.kernels import GPU_SIZES, finish
from stages.speed.workloads import MadeIndex

AT_ONCE, ON_THE_CPU = 1024, 1024
"""Queries of one product of the plain search; queries that the CPU searches too."""
ROWS_PER_SHARD = 1 << 16


def stored_keys(made: MadeIndex) -> np.ndarray:
    """The keys of its lists by their rows, [rows, dim] float16."""
    keys = np.empty((made.sizes.keys, made.sizes.key_dim), np.float16)
    lists, code_bytes = made.index.invlists, 2 * made.sizes.key_dim
    for number in range(made.index.nlist):
        size = lists.list_size(number)
        codes = faiss.rev_swig_ptr(lists.get_codes(number), size * code_bytes)
        keys[faiss.rev_swig_ptr(lists.get_ids(number), size)] = codes.view(np.float16).reshape(size, -1)
    return keys


class PlainSearch:
    """Squared distances to all keys by one product for some queries, and their smallest."""

    def __init__(self, keys: np.ndarray, device: torch.device) -> None:
        self.keys = torch.from_numpy(keys.astype(np.float32)).to(device)
        self.squares, self.device = self.keys.square().sum(dim=1), device

    def search(self, queries: np.ndarray, k: int) -> np.ndarray:
        parts = torch.from_numpy(queries).to(self.device).split(AT_ONCE)
        scores = (self.squares - 2 * part @ self.keys.T for part in parts)
        return torch.cat([own.topk(k, dim=1, largest=False).indices for own in scores]).cpu().numpy()


def shortest(search: Callable[[], np.ndarray], device: torch.device, rounds: int) -> tuple[float, np.ndarray]:
    """Seconds of the shortest of some runs, and what came out."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        found = search()
        finish(device)
        times.append(time.perf_counter() - started)
    return min(times), found


def measure(arguments: argparse.Namespace) -> None:
    device = resolve_device(arguments.device)
    # PyTorch names the CPU like this too: ours takes the path of a GPU there.
    name = "cuda" if device.type == "cuda" else "cpu:0"
    sizes = replace(
        GPU_SIZES, keys=arguments.keys, lists=arguments.lists, key_dim=arguments.dim, queries=arguments.queries
    )
    made = MadeIndex(sizes, device)
    keys, queries = stored_keys(made), made.queries.astype(np.float16).astype(np.float32)
    plain, on_cpu = PlainSearch(keys, device), searcher_of(made.index, "l2", sizes.probe)
    ours = {
        "lists": searcher_of(made.index, "l2", sizes.probe, name),
        "exact": ExactSearcher(StoredKeys(keys, ROWS_PER_SHARD), "l2", name),
    }
    for k in arguments.k:
        seconds, best = shortest(lambda k=k: plain.search(queries, k), device, arguments.rounds)
        print(f"k {k:5} plain {len(queries) / seconds:10,.0f} queries/s", flush=True)
        for kind, searcher in ours.items():
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds, found = shortest(lambda k=k, s=searcher: s.search(queries, k)[0], device, arguments.rounds)
            peak = f", peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB" if device.type == "cuda" else ""
            shared = f"recall {recall(found, best, k):.5f}"
            if kind == "lists":
                same = on_cpu.search(queries[:ON_THE_CPU], k)[0] == found[:ON_THE_CPU]
                shared += f", {same.mean():.6f} of the CPU's ids"
            print(f"k {k:5} {kind} {len(queries) / seconds:10,.0f} queries/s, {shared}{peak}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1 << 19)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--lists", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=1 << 15)
    parser.add_argument("--k", type=int, nargs="+", default=[4, 64, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
