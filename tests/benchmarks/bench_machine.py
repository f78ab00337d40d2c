"""Speed of this machine at what memlm is made of, beside what its processors should do.

    python -m tests.benchmarks.bench_machine [--folder DIR] [--device auto|cpu|cuda] [--tiny]

Prints a row a kernel as JSON: the measured rate, the rate expected from its operations and bytes,
and where that comes from. It takes less than five minutes.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from stages.errors import ResourceError
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Task
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.computing import resolve_device
from stages.models.language_model import LanguageModel
from stages.numbers import size
from stages.reporting import Silent
from stages.search.automatic import resolve
from stages.search.config import IndexConfig, Keys
from stages.search.factory import empty_index
from stages.search.open import searcher_of
from stages.search.searcher import Searcher
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from stages.training.ranks import make_fabric
from stages.training.training_data import Run

SECONDS, MOST_RUNS = 12.0, 20
"""A kernel is run again until it has taken so long, or so often: all of them take less than five
minutes.
"""
ROOM = 4
"""Free disk that is asked for, in sizes of the file that is written."""
FOUND_BYTES = 12
"""A row and a distance."""
DATASHEET = "NVIDIA's datasheet, without sparsity"
PEAKS = {
    "H200 NVL": (60e12, 836e12, 4.8e12),
    "H200": (67e12, 989e12, 4.8e12),
    "H100 NVL": (60e12, 836e12, 3.9e12),
    "H100 PCIe": (51e12, 756e12, 2.0e12),
    "H100": (67e12, 989e12, 3.35e12),
}
"""Operations a second in fp32 and bf16, and bytes, by a part of a GPU's name; the first that fits
counts.
"""


@dataclass(frozen=True)
class Sizes:
    """How large the work is."""

    product: int
    """Rows and columns of the matrices."""
    copied: int
    """Bytes of the tensor that is copied, and of the file."""
    keys: int
    lists: int
    probe: int
    """Lists that a query reads."""
    queries: int
    key_dim: int
    layers: int
    width: int
    vocabulary: int
    segment: int
    """Tokens of a segment."""
    batch: int
    """Tokens of a training step."""
    steps: int


CPU_SIZES = Sizes(
    product=2048, copied=512 << 20, keys=1 << 18, lists=1024, probe=64, queries=4096, key_dim=128,
    layers=4, width=256, vocabulary=10_000, segment=256, batch=2048, steps=5,
)  # fmt: skip
GPU_SIZES = Sizes(
    product=8192, copied=2 << 30, keys=1 << 20, lists=2048, probe=64, queries=1 << 15, key_dim=1024,
    layers=16, width=1024, vocabulary=33_278, segment=512, batch=16_384, steps=10,
)  # fmt: skip
TINY_SIZES = Sizes(
    product=64, copied=1 << 16, keys=2000, lists=16, probe=4, queries=50, key_dim=8,
    layers=1, width=16, vocabulary=50, segment=8, batch=32, steps=2,
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One kind of work.

    Attributes:
        amount: units of one run: operations, bytes, queries, tokens.
        operations: of its matrix products, in `precision`; 0: it is none of arithmetic.
        moved: bytes of memory that it reads and writes at the least; 0: not known.
        run: does it once; gives the seconds that count, where these are not all that it takes.
    """

    name: str
    unit: str
    amount: float
    run: Callable[[], float | None]
    operations: float = 0
    moved: float = 0
    precision: str = "fp32"


class Row(NamedTuple):
    """Measurements of a kernel; rates in `unit`."""

    name: str
    unit: str
    measured: float
    """By the shortest run."""
    expected: float | None
    """None: not known."""
    source: str
    """Source of the expected rate."""
    runs: int
    operations: float
    """Operations of a run, and the bytes that it moves in memory; 0: not known."""
    moved: float

    @property
    def told(self) -> dict[str, Any]:
        """All of it, and the share of the expected rate that was reached."""
        return self._asdict() | {"share": self.expected and self.measured / self.expected}


class Limits(NamedTuple):
    """The most operations a second in fp32 and bf16, and bytes of memory, and where that is known
    from.
    """

    fp32: float
    bf16: float
    memory: float
    source: str = "products and memory as measured here"

    def expected(self, kernel: Kernel) -> float | None:
        """Estimate the seconds of a kernel that is limited by products alone, or by memory alone."""
        products = kernel.operations / (self.fp32 if kernel.precision == "fp32" else self.bf16)
        return max(products, kernel.moved / self.memory) or None


def benchmark(
    folder: Path, device_name: str, sizes: Sizes | None = None, seconds: float = SECONDS
) -> list[Row]:
    """Measure this machine.

    Args:
        folder: on the disk that is measured; what is written is removed.
        device_name: `auto`, `cpu` or `cuda`: what products, search and training run on.
        seconds: of a kernel, about; one run of it at the least.
    Raises: ResourceError if the disk has too little room.
    """
    device = resolve_device(device_name)
    sizes = sizes or (CPU_SIZES if device.type == "cpu" else GPU_SIZES)
    _require_room(folder, sizes)
    by_peak = _peak(device)
    rows: list[Row] = []

    def measure(make: Callable[[], Kernel], limits: Limits | None) -> float:
        rows.append(_measured(make(), limits, seconds))
        return rows[-1].measured * 1e9

    limits = Limits(
        fp32=measure(lambda: product(sizes, device, "fp32"), by_peak),
        bf16=measure(lambda: product(sizes, device, "bf16"), by_peak),
        memory=measure(lambda: copy(sizes, device), by_peak),
    )
    with tempfile.TemporaryDirectory(dir=folder, prefix="speed-") as temporary:
        for make in _work(sizes, device, Path(temporary)):
            measure(make, limits)
    return rows


def _work(sizes: Sizes, device: Any, place: Path) -> Iterator[Callable[[], Kernel]]:
    yield partial(write_disk, sizes, place)
    yield partial(read_disk, place)
    made = MadeIndex(sizes, device)
    for k in (4, 1024):
        yield partial(search, made, k)
    del made
    for precision in ("fp32", "bf16"):
        yield partial(training, sizes, device, precision, place)


def _measured(kernel: Kernel, limits: Limits | None, seconds: float) -> Row:
    """The shortest of its runs; the first one warms up, and counts where it takes all the time."""
    taken: list[float] = []
    began = ended = time.perf_counter()
    while not taken or (ended - began < seconds and len(taken) < MOST_RUNS):
        started, counted = ended, kernel.run()
        ended = time.perf_counter()
        taken.append(counted or ended - started)
    least = None if limits is None else limits.expected(kernel)
    rate, source = (
        (None, "") if least is None or limits is None else (kernel.amount / least, limits.source)
    )
    measured = kernel.amount / min(taken)
    return Row(
        kernel.name,
        kernel.unit,
        measured,
        rate,
        source,
        len(taken),
        kernel.operations,
        kernel.moved,
    )


def _peak(device: torch.device) -> Limits | None:
    """Peak rates of a GPU by its maker; None where they are not known."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((Limits(*peak, DATASHEET) for part, peak in PEAKS.items() if part in name), None)


def _require_room(folder: Path, sizes: Sizes) -> None:
    free = shutil.disk_usage(folder).free
    if free < ROOM * sizes.copied:
        raise ResourceError(
            f"Measuring writes {size(sizes.copied)}, and the disk of {folder} has {size(free)} free."
        )


def product(sizes: Sizes, device: torch.device, precision: str) -> Kernel:
    """A product of square matrices: 2 n^3 operations, 3 n^2 numbers."""
    n, dtype = sizes.product, torch.float32 if precision == "fp32" else torch.bfloat16
    one, other = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))

    def run() -> None:
        torch.mm(one, other)
        finish(device)

    operations = 2.0 * n**3
    moved = 3.0 * n**2 * dtype.itemsize
    return Kernel(
        f"product of matrices, {precision}",
        "GFLOP/s",
        operations / 1e9,
        run,
        operations,
        moved,
        precision,
    )


def copy(sizes: Sizes, device: torch.device) -> Kernel:
    """A copy in memory: every byte is read once and written once."""
    source = torch.zeros(sizes.copied, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)

    def run() -> None:
        target.copy_(source)
        finish(device)

    return Kernel(
        "memory, read and written", "GB/s", 2 * sizes.copied / 1e9, run, moved=2.0 * sizes.copied
    )


def write_disk(sizes: Sizes, folder: Path) -> Kernel:
    """A file that is on the disk when it is done."""
    block = np.random.default_rng(0).bytes(min(sizes.copied, 16 << 20))
    path, blocks = folder / "disk", max(1, sizes.copied // len(block))

    def run() -> None:
        with path.open("wb") as file:
            for _ in range(blocks):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    return Kernel("disk, written", "MB/s", blocks * len(block) / 1e6, run)


def read_disk(folder: Path) -> Kernel:
    """The file that `write_disk` left, which the system is asked to forget before."""
    path = folder / "disk"
    buffer = bytearray(16 << 20)

    def run() -> None:
        with path.open("rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.readinto(buffer):
                pass

    return Kernel("disk, read", "MB/s", path.stat().st_size / 1e6, run)


def finish(device: torch.device) -> None:
    """Wait for what is under way on a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class MadeIndex:
    """Keys around random centres in float16, in lists around some of them, and queries that are
    moved keys.
    """

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        random, dim = np.random.default_rng(0), sizes.key_dim
        centres = random.standard_normal((sizes.lists, dim), np.float32)
        keys = centres[random.integers(sizes.lists, size=sizes.keys)]
        keys += 0.7 * random.standard_normal(keys.shape, np.float32)
        config = IndexConfig(index="ivf-flat", lists=sizes.lists, probe=sizes.probe)
        self.index = empty_index(resolve(config, Keys(sizes.keys, dim, "float16")), dim, "float16")
        self.index.quantizer.add(centres)
        self.index.is_trained = True
        self.index.add(keys)
        self.queries = keys[random.integers(sizes.keys, size=sizes.queries)]
        self.queries += 0.1 * random.standard_normal(self.queries.shape, np.float32)
        self.sizes, self.device = sizes, device

    def searcher(self) -> Searcher:
        return searcher_of(self.index, "l2", self.sizes.probe, self.device.type)

    def compared(self) -> int:
        """Pairs of a query and a key of the lists that it reads."""
        lengths = np.array(
            [self.index.invlists.list_size(number) for number in range(self.index.nlist)]
        )
        return int(lengths[self.index.quantizer.search(self.queries, self.sizes.probe)[1]].sum())


def search(made: MadeIndex, k: int) -> Kernel:
    """A block of queries against an IVF index.

    Operations: 2 d for every centre and every key of the lists that a query reads. Bytes: keys once
    in float16, what is found. Choosing the k best is none of either.
    """
    searcher, sizes = made.searcher(), made.sizes
    operations = 2.0 * sizes.key_dim * (sizes.queries * sizes.lists + made.compared())
    moved = 2.0 * sizes.keys * sizes.key_dim + float(FOUND_BYTES) * k * sizes.queries

    def run() -> None:
        searcher.search(made.queries, k)

    return Kernel(f"search, k = {k:,}", "queries/s", sizes.queries, run, operations, moved)


def training(sizes: Sizes, device: torch.device, precision: str, folder: Path) -> Kernel:
    """Steps of a Transformer, from drawing a batch to new weights; neither making the model counts
    nor saving it.

    Operations: 6 a token for every weight that products use, and 12 x layers x width x half a
    segment in attention (Kaplan et al. 2020, appendix B; forward 1, backward 2). Bytes: weights and
    their gradients, and two moments, each read and written once a step, in fp32.
    """
    config = _train_config(sizes, precision)
    ids = np.minimum(np.random.default_rng(0).zipf(1.3, 64 * sizes.batch), sizes.vocabulary) - 1
    cutting = config.model.cutting(WindowSettings(config.segment_length, config.segment_length))
    tasks, numbers = [Task("train", Streams(ids.astype(np.uint16), 0, cutting))], count()

    def run() -> float:
        place = folder / f"train-{precision}-{next(numbers)}"
        place.mkdir()
        method = METHODS.load(config.method)(config.method_settings, None)
        fabric, model = make_fabric(device), LanguageModel(config.model)
        return (
            Trainer(Run(fabric, config, model, method, tasks, None, place, Silent(), 1e9))
            .train()
            .seconds
        )

    weights = sizes.layers * 12 * sizes.width**2 + sizes.vocabulary * sizes.width
    attention = 12 * sizes.layers * sizes.width * sizes.segment / 2
    tokens = sizes.steps * sizes.batch
    return Kernel(
        f"training, {precision}",
        "tokens/s",
        tokens,
        run,
        operations=tokens * (6.0 * weights + attention),
        moved=sizes.steps * weights * 4.0 * 2 * 4,
        precision=precision,
    )


def _train_config(sizes: Sizes, precision: str) -> TrainConfig:
    model = TransformerConfig(
        vocab_size=sizes.vocabulary,
        layers=sizes.layers,
        width=sizes.width,
        heads=max(1, sizes.width // 64),
        ffn_width=4 * sizes.width,
        max_positions=sizes.segment,
    )
    settings: dict[str, Any] = {
        "segment_length": sizes.segment,
        "batch_tokens": sizes.batch,
        "steps": sizes.steps,
    }
    return TrainConfig(model=model, valid_every=0, precision=precision, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk that is measured")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--tiny", action="store_true", help="tiny sizes, once each: whether it runs"
    )
    arguments = parser.parse_args()
    sizes, seconds = (TINY_SIZES, 0.0) if arguments.tiny else (None, SECONDS)
    rows = benchmark(arguments.folder, arguments.device, sizes, seconds)
    print(json.dumps({"speed": [row.told for row in rows]}))


if __name__ == "__main__":
    main()
