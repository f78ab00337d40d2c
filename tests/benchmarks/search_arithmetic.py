"""Arithmetic of finding the neighbours of every token on one GPU: operations, bytes, and seconds of
each phase.

    python -m tests.benchmarks.search_arithmetic > \\
        docs/results/data/cluster/neighbors-on-one-gpu.toml

Nothing of it is measured at this size. Rates are those of the maker's datasheet, times the share of
them that an H100 reached (docs/results/data/speed/on-a-gpu.toml). `phases` is the least that
products and bytes take. `today` adds what memlm spends beyond that on each pair of a query and a
key, as measured (on-a-gpu-4.toml). It fills the lists on the host, as memlm does.
"""

import json
import tomllib
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from stages.indexing.layouts import FOUND_BYTES, MOST_QUERIES, QUERY_BYTES, ROW_BYTES
from stages.search.automatic import KEYS_PER_LIST, PROBE
from stages.search.tensors import resident_bytes
from tests.benchmarks.bench_machine import PEAKS

DATA = Path(__file__).resolve().parents[2] / "docs/results/data/speed"
OF_PRODUCTS, OF_MEMORY = 0.77, 0.89
"""Shares of the datasheet that an H100 reached."""
LINK, GPU_BYTES = 64e9, 141e9
"""Bytes a second from the host to an H200 (PCIe 5, one way), and bytes of its memory, by the
datasheet.
"""
CORES, CORE = 16, 50e9
"""Cores of the host, and operations a second of one in matrix products: half of what two reached
(search.toml).
"""
ROUNDS = 10
"""Rounds of k-means, as FAISS makes them."""
HALF, FULL = 2, 4
"""Bytes of a number."""
KEYS, DIM, K, CANDIDATES = 103_000_000, 512, 4, 256
"""WikiText-103's tokens, and the width and neighbours of SPALM; of one bit, rows that are ranked
again.
"""


class Gpu(NamedTuple):
    """Rates that a GPU reaches, a second."""

    fp32: float
    half: float
    """Operations in products of float16, with sums in float32."""
    memory: float
    """Bytes."""


class Work(NamedTuple):
    """Neighbours of every key among all keys."""

    keys: int = KEYS
    dim: int = DIM
    k: int = K
    at_once: int | None = None
    """Queries of a block; None: as many as `precompute-neighbors` has."""

    @property
    def bytes(self) -> float:
        """Bytes of all keys in float16."""
        return float(HALF) * self.keys * self.dim


class Way(NamedTuple):
    """One way to search.

    Attributes:
        lists: 0: every key is compared.
        half: whether products are of float16.
        bits: of a number of a key as it is compared; those of fewer than 16 are ranked again.
        shown: whether the page shows it.
    """

    name: str
    lists: int = 0
    half: bool = False
    bits: int = 16
    shown: bool = True

    def compared(self, work: Work) -> float:
        """Keys that a query is compared with."""
        return (
            work.keys * min(1.0, PROBE["ivf-flat"] / self.lists) if self.lists else float(work.keys)
        )


WAYS = (
    Way("exact, fp32", shown=False),
    Way("exact, float16", half=True),
    Way("4,096 lists, fp32", 4096),
    Way("16,384 lists, fp32", 16384),
    Way("16,384 lists, float16", 16384, half=True),
    Way("16,384 lists, one bit, 256 ranked again", 16384, half=True, bits=1, shown=False),
    Way("65,536 lists, fp32", 65536, shown=False),
)


def reached(name: str) -> Gpu:
    """Rates of a GPU by its maker, times the shares that were reached."""
    fp32, half, memory = PEAKS[name]
    return Gpu(OF_PRODUCTS * fp32, OF_PRODUCTS * half, OF_MEMORY * memory)


def queries_at_once(dim: int, k: int) -> int:
    """Queries of a block of `precompute-neighbors`, for keys of some width."""
    return min(MOST_QUERIES, QUERY_BYTES // (FULL * dim), FOUND_BYTES // (ROW_BYTES * k))


def phases(work: Work, way: Way, gpu: Gpu) -> dict[str, float]:
    """Seconds of each phase at the least.

    Scores are written once in float32 and read once; keys pass once for each block of queries. All
    keys come over the link once, and what is found leaves over it.

    >>> found = phases(Work(keys=1000, dim=10, k=1, at_once=500), Way("", half=True), Gpu(1.0, 10.0, 2.0))
    >>> found["products"], found["scores"], found["keys"]  # 1000^2 x 20 / 10, 1000^2 x 8 / 2, 2 blocks x 20,000 / 2
    (2000000.0, 4000000.0, 20000.0)
    """
    pairs, centres = work.keys * way.compared(work), float(work.keys) * way.lists
    operations = 2.0 * work.dim
    blocks = ceil(work.keys / (work.at_once or queries_at_once(work.dim, work.k)))
    again = float(HALF) * CANDIDATES * work.dim * work.keys if way.bits < 8 * HALF else 0.0
    return {
        "centres": centres * operations / gpu.fp32,
        "products": pairs * operations / (gpu.half if way.half else gpu.fp32),
        "scores": 2.0 * FULL * pairs / gpu.memory,
        "keys": blocks * work.bytes * way.bits / (8 * HALF) / gpu.memory,
        "ranked again": again / gpu.memory,
        "link": (work.bytes + float(ROW_BYTES) * work.k * work.keys) / (OF_PRODUCTS * LINK),
        "filling": filling(work, way) / gpu.fp32,
    }


def filling(work: Work, way: Way) -> float:
    """Operations that lists take to be learnt by k-means, and to be filled."""
    return 2.0 * work.dim * way.lists * (work.keys + ROUNDS * KEYS_PER_LIST * way.lists)


def paces() -> dict[str, float]:
    """Seconds that memlm spent on a pair of a query and a key, beyond `phases`: `exact`, `lists`;
    measured, k = 4.
    """
    table = tomllib.loads((DATA / "on-a-gpu-4.toml").read_text("utf-8"))
    cells = next(row["cells"] for row in table["rows"] if row["cells"][0].startswith("4,194,304"))
    work, gpu = Work(keys=4_194_304, dim=128, at_once=32768), reached("H100")
    found = {}
    for name, way, rate in (("exact", Way(""), cells[2]), ("lists", Way("", 2048), cells[4])):
        least = phases(work, way, gpu)
        searched = sum(least[phase] for phase in ("centres", "products", "scores", "keys"))
        found[name] = (work.keys / rate - searched) / (work.keys * way.compared(work))
    return found


def today(work: Work, way: Way, gpu: Gpu) -> dict[str, float]:
    """Seconds of each phase as memlm is: lists are filled on the host, and what does not stay
    passes for each block.
    """
    least, pace = phases(work, way, gpu), paces()["lists" if way.lists else "exact"]
    blocks = ceil(work.keys / (work.at_once or queries_at_once(work.dim, work.k)))
    passing = max(0.0, work.bytes - resident_bytes(int(GPU_BYTES)))
    return least | {
        "overhead": pace * work.keys * way.compared(work),
        "link": least["link"] + blocks * passing / (OF_PRODUCTS * LINK),
        "filling": filling(work, way) / (CORES * CORE),
    }


def rows(work: Work, gpu: Gpu) -> Iterator[list[Any]]:
    """Cells of the table, a row for each way."""
    for way in WAYS:
        least = phases(work, way, gpu)
        operations = 2.0 * work.dim * work.keys * (way.compared(work) + way.lists) + filling(
            work, way
        )
        moved = least["scores"] + least["keys"] + least["ranked again"]
        own = today(work, way, gpu) if not way.half else None
        yield [
            way.name,
            f"{operations / 1e15:,.0f}",
            f"{moved * gpu.memory / 1e12:,.0f}",
            minutes(least["products"] + least["centres"] + least["filling"]),
            minutes(moved),
            minutes(sum(least.values())),
            "" if own is None else minutes(sum(own.values())),
            "" if own is None else f"{minutes(own['filling'])}, {minutes(own['overhead'])}",
        ]


def minutes(seconds: float) -> str:
    """Minutes, hours above two of them.

    >>> minutes(30), minutes(600), minutes(36000)
    ('.5 min', '10 min', '10 h')
    """
    if seconds >= 7200:
        return f"{seconds / 3600:,.0f} h"
    return (
        f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds / 60:.1f} min".removeprefix("0")
    )


COLUMNS = (
    "neighbours of 103 million keys x 512",
    "operations, 10^15",
    "TB of memory, moved",
    "products",
    "bytes",
    "at the least",
    "as memlm is",
    "filling on the host, beyond products and bytes",
)
SHOWN = [0, 3, 4, 5, 6]


def table(work: Work, gpu: Gpu) -> str:
    """The file of the results page."""
    setup = "Not measured: one H200, k = 4, 64 lists, 77 % of its datasheet's products, 89 % of its bytes."
    details = [
        f"Keys in float16 take {work.bytes / 1e9:.1f} GB of {GPU_BYTES / 1e9:.0f}; of one bit {work.bytes / 16e9:.1f}.",
        "Assumed: scores in float32 are written once and read once, keys pass once for each block of queries, "
        f"lists are of one length, the link gives {100 * OF_PRODUCTS:.0f} % of {LINK / 1e9:.0f} GB/s, "
        f"k-means takes {ROUNDS} rounds of {KEYS_PER_LIST} keys a list.",
        f"As memlm is: lists are filled on {CORES} cores of {CORE / 1e9:.0f} GFLOP/s, and each pair of query and key "
        f"takes {1e12 * paces()['lists']:.0f} ps more in lists, {1e12 * paces()['exact']:.1f} ps in exact search, "
        "as on an H100.",
        "Recall is not known: 64 of 65,536 lists hold a thousandth of the keys.",
    ]
    top = {"details": details, "columns": COLUMNS, "show": SHOWN}
    head = [
        f"setup = {json.dumps(setup, ensure_ascii=False)}",
        "command = '''\npython -m tests.benchmarks.search_arithmetic\n'''",
        *(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in top.items()),
    ]
    lines = [
        f"\n[[rows]]\n{'' if way.shown else 'more = true' + chr(10)}cells = {json.dumps(cells)}"
        for way, cells in zip(WAYS, rows(work, gpu), strict=True)
    ]
    return "\n".join([*head, *lines, ""])


if __name__ == "__main__":
    print(table(Work(), reached("H200")), end="")
