"""Search on a GPU beside the plainest search there, one product with all keys and `topk`, and
beside other engines.

    python -m tests.benchmarks.bench_device_search [--keys 524288 --lists 1024 --queries 32768 \\
        --k 4 64 1024]
    python -m tests.benchmarks.bench_device_search --keys 4194304 --lists 2048 --k 4 1024 \\
        --rounds 2 --rivals
    python -m tests.benchmarks.bench_device_search --k 1024 --rounds 1 --only lists exact --profile
    python -m tests.benchmarks.bench_device_search --kernels

Keys are made around random centres, each in the list of its own, 64 of which are read. A row for
each k and engine, as JSON: queries/s, and how many times those of the plain search, which is exact;
the share of its neighbours that are found, and of queries whose neighbours come nearest first; the
peak of the GPU's memory; and how many ids with lists are those that the CPU finds for a few
queries. `--rivals` adds FAISS on the host, and on the GPU where such a build is installed; `notes`
says which is not.

`--profile` shows what the host and the GPU do in one search of ours. `--kernels` times other ways
to compute its parts. `--set tensors.SCORES=1000000` (`tensor_lists.WIDTHS=64,64`) tries other sizes
of them.
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, max_pool1d
from torch.profiler import ProfilerActivity, profile

from stages.models.computing import resolve_device
from stages.search.exact import ExactSearcher
from stages.search.keys import StoredKeys
from stages.search.open import searcher_of
from stages.search.quality import recall
from stages.search.searcher import Searcher
from stages.search.tensors import smallest
from tests.benchmarks.bench_machine import finish
from tests.benchmarks.device_rivals import ON_THE_HOST, rivals

PROBE, AT_ONCE, PLAIN_SCORES = 64, 1024, 1 << 29
"""Lists that are read; queries of one product of the plain search, and scores at the most."""
COMPARED, ON_THE_CPU, FEW = 4096, 512, 64
"""Queries whose neighbours are compared with the plain search's; those that the CPU searches too;
those before all.
"""
ROWS_PER_SHARD, KEYS_AT_ONCE = 1 << 16, 1 << 20
Found = tuple[np.ndarray, np.ndarray]
"""Rows and squared distances [n, k] of the neighbours of queries."""


class Made:
    """Keys float16 around random centres, sorted by the list of each, and queries that are moved
    keys.

    Attributes:
        index: holds a copy of the keys, in lists.
        rows: [queries] of the key that each query was.
    """

    def __init__(self, keys: int, dim: int, lists: int, queries: int, device: torch.device) -> None:
        torch.manual_seed(0)
        centres = torch.randn(lists, dim, device=device)
        owners = torch.randint(lists, (keys,), device=device).sort().values
        self.keys, first = np.empty((keys, dim), np.float16), 0
        for own in owners.split(KEYS_AT_ONCE):
            part = centres[own] + 0.7 * torch.randn(len(own), dim, device=device)
            self.keys[first : first + len(own)] = part.half().cpu().numpy()
            first += len(own)
        self.rows = torch.randint(keys, (queries,)).numpy()
        moved = self.keys[self.rows] + 0.1 * torch.randn(queries, dim).numpy()
        self.queries = moved.astype(np.float16).astype(np.float32)
        self.index = _trained(centres.cpu().numpy())
        self.index.ntotal, self.index.nprobe = keys, PROBE
        first = 0
        for number, size in enumerate(torch.bincount(owners, minlength=lists).tolist()):
            ids, codes = np.arange(first, first + size), self.keys[first : first + size]
            self.index.invlists.add_entries(
                number, size, faiss.swig_ptr(ids), faiss.swig_ptr(codes.view(np.uint8))
            )
            first += size

    def searcher(self, device: str) -> Searcher:
        """Search by lists on `cpu` or `cuda`."""
        return searcher_of(self.index, "l2", PROBE, device)


def _trained(centres: np.ndarray) -> faiss.IndexIVF:
    lists, dim = centres.shape
    quantizer = faiss.IndexFlatL2(dim)
    quantizer.add(centres)
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, dim, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_L2, False
    )
    index.is_trained = True
    return index


def device_name(device: torch.device) -> str:
    """Name by which a search takes the path of a GPU: PyTorch knows the CPU as `cpu:0`, too."""
    return "cuda" if device.type == "cuda" else "cpu:0"


class PlainSearch:
    """Squared distances to all keys by one product for some queries, and their smallest."""

    def __init__(self, keys: np.ndarray, device: torch.device) -> None:
        self.keys = torch.from_numpy(keys).to(device).float()
        self.squares, self.device = self.keys.square().sum(dim=1), device

    def search(self, queries: np.ndarray, k: int) -> Found:
        parts = (
            torch.from_numpy(queries)
            .to(self.device)
            .split(min(AT_ONCE, PLAIN_SCORES // len(self.keys)))
        )
        scores = (self.squares - 2 * part @ self.keys.T for part in parts)
        best = [own.topk(k, dim=1, largest=False) for own in scores]
        rows, rough = (torch.cat([one[place] for one in best]).cpu().numpy() for place in (1, 0))
        return rows, rough


def shortest(search: Callable[[], Found], device: torch.device, rounds: int) -> tuple[float, Found]:
    """Seconds of the shortest of some runs, and what came out."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        found = search()
        finish(device)
        times.append(time.perf_counter() - started)
    return min(times), found


def measure(arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Rows of each k and engine, and notes on what could not be measured."""
    made = Made(arguments.keys, arguments.dim, arguments.lists, arguments.queries, device)
    plain, on_cpu = PlainSearch(made.keys, device), made.searcher("cpu")
    exclude = None
    if arguments.exclude is not None:
        exclude = made.rows[:, None] + np.array([-arguments.exclude, arguments.exclude + 1])
    ours = {
        "lists": made.searcher(device_name(device)),
        "exact": ExactSearcher(StoredKeys(made.keys, ROWS_PER_SHARD), "l2", device_name(device)),
    }
    others, notes = rivals(made.index) if arguments.rivals else ({}, [])
    for search in (plain.search, *(one.search for one in ours.values()), *others.values()):
        search(made.queries[:FEW], 1)  # brings keys to the GPU, and what computes with them
    rows = []
    for k in arguments.k:
        of_plain, found = shortest(partial(plain.search, made.queries, k), device, arguments.rounds)
        best, per_query = found[0], of_plain / len(made.queries)

        def row(
            name: str,
            seconds: float,
            found: Found,
            k: int = k,
            per_query: float = per_query,
            best: np.ndarray = best,
        ) -> dict[str, Any]:
            rows, distances = found
            compared = min(COMPARED, len(rows))
            return {
                "name": f"k = {k:,}, {name}",
                "queries": round(len(rows) / seconds),
                "ratio": round(per_query * len(rows) / seconds, 2),
                "recall": recall(rows[:compared], best[:compared], k),
                "in order": float((np.diff(distances, axis=1) >= 0).all(axis=1).mean()),
            }

        rows.append(row("product and topk", of_plain, found))
        for kind in arguments.only:
            search = partial(ours[kind].search, made.queries, k, exclude)
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            seconds, found = shortest(search, device, arguments.rounds)
            rows.append(row(kind, seconds, found))
            if device.type == "cuda":
                rows[-1]["peak"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
            if kind == "lists":
                few = slice(ON_THE_CPU)
                again, _ = on_cpu.search(
                    made.queries[few], k, None if exclude is None else exclude[few]
                )
                rows[-1]["as on the CPU"] = float((again == found[0][few]).mean())
            if arguments.profile:
                profiled(search, device)
        for name, engine in others.items():
            queries = made.queries[: ON_THE_HOST if "host" in name else None]
            try:
                rows.append(
                    row(name, *shortest(partial(engine, queries, k), device, arguments.rounds))
                )
            except RuntimeError as error:
                notes.append(f"{name}, k = {k:,}: {str(error).splitlines()[0]}")
    return {"rows": rows, "notes": notes}


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
            f"product with squares in {width} columns": lambda own=own: own[0] @ own[1].T
            for width, own in wide.items()
        },
        "product in half precision, scores too": lambda: some.half() @ half.T,
        "product in half precision, scores in fp32": lambda: torch.mm(
            some.half(), half.T, out_dtype=torch.float32
        ),
        "minima of groups of 32, every w-th": lambda: scores.unflatten(1, (32, keys // 32)).amin(
            dim=1
        ),
        "minima of groups of 31, every w-th": lambda: (
            scores[:, : keys // 31 * 31].unflatten(1, (31, keys // 31)).amin(dim=1)
        ),
        "minima of groups of 32, side by side": lambda: scores.unflatten(1, (keys // 32, 32)).amin(
            dim=2
        ),
        "minima of groups of 32, min pooling": lambda: max_pool1d(scores, 32),
    }
    for k in arguments.k:
        places = torch.randint(keys, (many, k), device=device)
        pairs = torch.randint(1 << 60, (many, k + k // 32), device=device)
        ways |= {
            f"topk, k = {k}": lambda k=k: scores.topk(k, dim=1, largest=False),
            f"topk unsorted, k = {k}": lambda k=k: scores.topk(
                k, dim=1, largest=False, sorted=False
            ),
            f"ours, k = {k}": lambda k=k: smallest(scores, k),
            f"keys of pairs, k = {k}": lambda places=places: half[places],
            f"keys of pairs by 8 bytes, k = {k}": lambda places=places: half.view(torch.int64)[
                places
            ],
            f"keys of pairs by 16 bytes, k = {k}": lambda places=places: half.view(
                torch.complex128
            )[places],
            f"keys of pairs, index_select, k = {k}": lambda places=places: half.index_select(
                0, places.flatten()
            ),
            f"keys of pairs, embedding, k = {k}": lambda places=places: embedding(places, half),
            f"differences, k = {k}": lambda places=places: (
                (some[:, None] - half[places]).square_().sum(dim=2)
            ),
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
        "half precision, summed in fp32": lambda: torch.mm(
            queries.half(), keys.half().T, out_dtype=torch.float32
        ),
    }
    for name, way in ways.items():
        try:
            print(
                f"error, {name:38} {float(((way() - want) / lengths).abs().max()):.2e}", flush=True
            )
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
        setattr(
            place, constant, numbers if isinstance(getattr(place, constant), tuple) else numbers[0]
        )


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1 << 19)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--lists", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=1 << 15)
    parser.add_argument("--k", type=int, nargs="+", default=[4, 64, 1024])
    parser.add_argument(
        "--exclude", type=int, help="rows around that of its key that a query may not see, in ours"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=("lists", "exact"), default=["lists", "exact"])
    parser.add_argument("--rivals", action="store_true", help="other engines, too")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--device", default="auto")
    return parser.parse_args(words)


def main() -> None:
    arguments = arguments_of()
    change(arguments.set)
    device = resolve_device(arguments.device)
    if arguments.kernels:
        kernels(arguments, device)
    else:
        print(json.dumps(measure(arguments, device), indent=1))


if __name__ == "__main__":
    main()
