"""Search on a GPU beside the plainest search there, one product with all keys and `topk`, and beside the CPU.

    python -m tests.benchmarks.bench_device_search [--keys 524288 --lists 1024 --queries 32768 --k 4 64 1024]
    python -m tests.benchmarks.bench_device_search --keys 4194304 --lists 2048 --k 4 1024 --rounds 2
    python -m tests.benchmarks.bench_device_search --k 1024 --rounds 1 --only lists exact --profile
    python -m tests.benchmarks.bench_device_search --kernels

Keys are made around random centres, each in the list of its own, 64 of which are read. Told of each k, as JSON:
queries/s of the plain search, which is exact; of ours with lists and without; the share of its neighbours that are
found; the peak of the GPU's memory; and how many ids with lists are those that the CPU finds for a few queries.
`--profile` shows what the host and the GPU do in one search of ours, `--kernels` what ways there are to compute what
ours is made of, and `--set tensors.SCORES=1000000` (`tensor_lists.WIDTHS=64,64`) tries other sizes of its parts.
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import faiss
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, max_pool1d
from torch.profiler import ProfilerActivity, profile

from stages.models.devices import resolve_device
from stages.search.exact import ExactSearcher
from stages.search.keys import StoredKeys
from stages.search.open import searcher_of
from stages.search.quality import recall
from stages.search.searcher import Searcher
from stages.search.tensors import smallest
from tests.benchmarks.bench_machine import finish

PROBE, AT_ONCE, PLAIN_SCORES = 64, 1024, 1 << 29
"""Lists that are read; queries of one product of the plain search, and scores at the most."""
COMPARED, ON_THE_CPU = 4096, 512
"""Queries whose neighbours are compared with the plain search's; those that the CPU searches too."""
ROWS_PER_SHARD, KEYS_AT_ONCE = 1 << 16, 1 << 20


class Made:
    """Keys float16 around random centres, in the lists of these, and queries that are moved keys, made on a device."""

    def __init__(self, arguments: argparse.Namespace, device: torch.device) -> None:
        torch.manual_seed(0)
        count, dim = arguments.keys, arguments.dim
        centres = torch.randn(arguments.lists, dim, device=device)
        owners = torch.randint(arguments.lists, (count,), device=device)
        keys = torch.empty(count, dim, dtype=torch.float16, device=device)
        for part, own in zip(keys.split(KEYS_AT_ONCE), owners.split(KEYS_AT_ONCE), strict=True):
            part.copy_(centres[own] + 0.7 * torch.randn(part.shape, device=device))
        rows = torch.randint(count, (arguments.queries,), device=device)
        some = keys[rows].float()
        queries = (some + 0.1 * torch.randn(some.shape, device=device)).half().float()
        self.keys, self.queries, self.exclude = keys.cpu().numpy(), queries.cpu().numpy(), None
        if arguments.exclude is not None:
            self.exclude = rows.cpu().numpy()[:, None] + np.array([-arguments.exclude, arguments.exclude + 1])
        self.index = _index(centres.cpu().numpy(), self.keys, owners.cpu().numpy())


def _index(centres: np.ndarray, keys: np.ndarray, owners: np.ndarray) -> faiss.IndexIVF:
    lists, dim = centres.shape
    quantizer = faiss.IndexFlatL2(dim)
    quantizer.add(centres)
    index = faiss.IndexIVFScalarQuantizer(quantizer, dim, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_L2, False)
    index.is_trained, index.ntotal = True, len(keys)
    rows = np.argsort(owners, kind="stable")
    limits = np.searchsorted(owners[rows], np.arange(lists + 1))
    for number in range(lists):
        own = rows[limits[number] : limits[number + 1]]
        codes = np.ascontiguousarray(keys[own]).view(np.uint8)
        index.invlists.add_entries(number, len(own), faiss.swig_ptr(own), faiss.swig_ptr(codes))
    return index


class PlainSearch:
    """Squared distances to all keys by one product for some queries, and their smallest."""

    def __init__(self, keys: np.ndarray, device: torch.device) -> None:
        self.keys = torch.from_numpy(keys).to(device).float()
        self.squares, self.device = self.keys.square().sum(dim=1), device

    def search(self, queries: np.ndarray, k: int) -> np.ndarray:
        parts = torch.from_numpy(queries).to(self.device).split(min(AT_ONCE, PLAIN_SCORES // len(self.keys)))
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


def measure(arguments: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """A row for each k and kind of search."""
    # PyTorch names the CPU like this too: ours takes the path of a GPU there.
    name = "cuda" if device.type == "cuda" else "cpu:0"
    made = Made(arguments, device)
    plain, on_cpu = PlainSearch(made.keys, device), searcher_of(made.index, "l2", PROBE)
    every: dict[str, Searcher] = {
        "lists": searcher_of(made.index, "l2", PROBE, name),
        "exact": ExactSearcher(StoredKeys(made.keys, ROWS_PER_SHARD), "l2", name),
    }
    for k in arguments.k:
        of_plain, best = shortest(partial(plain.search, made.queries, k), device, arguments.rounds)
        for kind in arguments.only:
            search = partial(_rows, every[kind], made, k)
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds, found = shortest(search, device, arguments.rounds)
            row: dict[str, Any] = {"name": f"k = {k:,}, {kind}"}
            row |= {"plain": round(len(best) / of_plain), "queries": round(len(found) / seconds)}
            row |= {"ratio": round(of_plain / seconds, 2), "recall": recall(found[:COMPARED], best[:COMPARED], k)}
            if device.type == "cuda":
                row["peak"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
            if kind == "lists":
                row["as on the CPU"] = float((_rows(on_cpu, made, k, ON_THE_CPU) == found[:ON_THE_CPU]).mean())
            yield row
            if arguments.profile:
                profiled(search, device)


def _rows(searcher: Searcher, made: Made, k: int, first: int | None = None) -> np.ndarray:
    """What the first queries find."""
    return searcher.search(made.queries[:first], k, None if made.exclude is None else made.exclude[:first])[0]


def profiled(search: Callable[[], object], device: torch.device) -> None:
    """Show what one search does, by the time that it takes the GPU, or the CPU where there is none."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as seen:
        started = time.perf_counter()
        search()
        finish(device)
        seconds = time.perf_counter() - started
    by = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    print(f"{seconds * 1e3:,.0f} ms under the profiler", flush=True)
    print(seen.key_averages().table(sort_by=by, row_limit=22, max_name_column_width=60), flush=True)


def kernels(arguments: argparse.Namespace, device: torch.device) -> None:
    """Microseconds for 1,024 queries of ways to compute the same."""
    many, keys, dim = min(AT_ONCE, arguments.queries), arguments.keys, arguments.dim
    some, vectors = (torch.randn(rows, dim, device=device).half().float() for rows in (many, keys))
    errors(some[:64], vectors)
    squares, half = vectors.square().sum(dim=1), vectors.half()
    scores = torch.addmm(squares, some, vectors.T, alpha=-2)
    wide = {width: _widened(some, vectors, squares, width) for width in (dim + 1, dim + 4)}
    ways: dict[str, Callable[[], object]] = {
        "product, then squares": lambda: squares - 2 * some @ vectors.T,
        "product with squares as bias": lambda: torch.addmm(squares, some, vectors.T, alpha=-2),
        "product with squares as bias, no factor": lambda: torch.addmm(squares, some, vectors.T),
        **{
            f"product with squares in {width} columns": lambda own=own: own[0] @ own[1].T for width, own in wide.items()
        },
        "product in half precision, scores too": lambda: some.half() @ half.T,
        "product in half precision, scores in fp32": lambda: torch.mm(some.half(), half.T, out_dtype=torch.float32),
        "minima of groups of 32, every w-th": lambda: scores.unflatten(1, (32, keys // 32)).amin(dim=1),
        "minima of groups of 31, every w-th": lambda: (
            scores[:, : keys // 31 * 31].unflatten(1, (31, keys // 31)).amin(dim=1)
        ),
        "minima of groups of 32, side by side": lambda: scores.unflatten(1, (keys // 32, 32)).amin(dim=2),
        "minima of groups of 32, min pooling": lambda: max_pool1d(scores, 32),
    }
    for k in arguments.k:
        places = torch.randint(keys, (many, k), device=device)
        pairs = torch.randint(1 << 60, (many, k + k // 32), device=device)
        ways |= {
            f"topk, k = {k}": lambda k=k: scores.topk(k, dim=1, largest=False),
            f"topk unsorted, k = {k}": lambda k=k: scores.topk(k, dim=1, largest=False, sorted=False),
            f"ours, k = {k}": lambda k=k: smallest(scores, k),
            f"keys of pairs, k = {k}": lambda places=places: half[places],
            f"keys of pairs by 8 bytes, k = {k}": lambda places=places: half.view(torch.int64)[places],
            f"keys of pairs by 16 bytes, k = {k}": lambda places=places: half.view(torch.complex128)[places],
            f"keys of pairs, index_select, k = {k}": lambda places=places: half.index_select(0, places.flatten()),
            f"keys of pairs, embedding, k = {k}": lambda places=places: embedding(places, half),
            f"differences, k = {k}": lambda places=places: (some[:, None] - half[places]).square_().sum(dim=2),
            f"sort, k = {k}": lambda pairs=pairs: pairs.sort(dim=1),
            f"topk of pairs, k = {k}": lambda pairs=pairs, k=k: pairs.topk(k, dim=1, largest=False),
        }
    for name, way in ways.items():
        try:
            way()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            print(f"{name:45} {str(error).splitlines()[0][:60]}", flush=True)
            continue
        print(f"{name:45} {_microseconds(way, device) * AT_ONCE / many:10,.0f} us", flush=True)


def errors(queries: Tensor, keys: Tensor) -> None:
    """How far products of numbers in half precision are off, of the product of the lengths."""
    want = queries.double() @ keys.double().T
    lengths = queries.double().norm(dim=1)[:, None] * keys.double().norm(dim=1)
    ways = {
        "fp32": lambda: queries @ keys.T,
        "half precision, summed in fp32": lambda: torch.mm(queries.half(), keys.half().T, out_dtype=torch.float32),
    }
    for name, way in ways.items():
        try:
            print(f"error, {name:38} {float(((way() - want) / lengths).abs().max()):.2e}", flush=True)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            print(f"error, {name:38} {str(error).splitlines()[0][:60]}", flush=True)


def _widened(some: Tensor, keys: Tensor, squares: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Queries and keys with as many columns as wanted, one of which adds the squares."""
    both = [tensor.new_zeros(len(tensor), width) for tensor in (some, keys)]
    for wide, tensor, last in zip(both, (-2 * some, keys), (1, squares), strict=True):
        wide[:, : tensor.shape[1]], wide[:, tensor.shape[1]] = tensor, last
    return both[0], both[1]


def _microseconds(way: Callable[[], object], device: torch.device, rounds: int = 5) -> float:
    finish(device)
    started = time.perf_counter()
    for _ in range(rounds):
        way()
    finish(device)
    return (time.perf_counter() - started) / rounds * 1e6


def change(settings: list[str]) -> None:
    """Give constants of `stages.search` other values: numbers, or tuples of them."""
    for setting in settings:
        name, _, value = setting.partition("=")
        module, _, constant = name.rpartition(".")
        numbers = tuple(map(int, value.split(",")))
        place = importlib.import_module(f"stages.search.{module}")
        assert hasattr(place, constant), setting
        setattr(place, constant, numbers if isinstance(getattr(place, constant), tuple) else numbers[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1 << 19)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--lists", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=1 << 15)
    parser.add_argument("--k", type=int, nargs="+", default=[4, 64, 1024])
    parser.add_argument("--exclude", type=int, help="rows around that of its key that a query may not see, in ours")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=("lists", "exact"), default=["lists", "exact"])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    change(arguments.set)
    device = resolve_device(arguments.device)
    if arguments.kernels:
        kernels(arguments, device)
    else:
        print(json.dumps({"rows": list(measure(arguments, device))}, indent=1))


if __name__ == "__main__":
    main()
