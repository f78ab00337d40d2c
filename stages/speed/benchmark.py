"""The kernels in turn, each measured and compared with what its bytes and operations take."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stages.errors import ResourceError
from stages.models.devices import cpu_threads, resolve_device
from stages.numbers import size
from stages.reporting import Reporter
from stages.speed import kernels, workloads
from stages.speed.kernels import CPU_SIZES, GPU_SIZES, Kernel, Sizes
from stages.speed.processors import Peak, peak

SECONDS, MOST_RUNS = 12.0, 20
"""A kernel is run again until it has taken so long, or so often: all of them take less than five minutes."""
KERNELS = 11
ROOM = 4
"""Times the file that is written: free disk that is asked for."""


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


class Limits(NamedTuple):
    """Operations a second in fp32 and bf16, and bytes of memory, as measured here."""

    fp32: float
    bf16: float
    memory: float

    def expected(self, kernel: Kernel) -> tuple[float | None, str]:
        """Estimate the time of a kernel that is limited by products alone, or by memory alone."""
        products = kernel.operations / (self.fp32 if kernel.precision == "fp32" else self.bf16)
        least = max(products, kernel.moved / self.memory)
        return (least, "products and memory as measured here") if least else (None, "")


Expected = Callable[[Kernel], tuple[float | None, str]]
"""Seconds that a run of a kernel should take, None where that is not known, and what they are taken from."""


def benchmark(
    folder: Path, device_name: str, reporter: Reporter, sizes: Sizes | None = None, seconds: float = SECONDS
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
    by_peak = partial(_by_peak, peak(device.type, cpu_threads()))
    rows: list[Row] = []

    def measure(make: Callable[[], Kernel], expected: Expected) -> float:
        rows.append(_measured(make(), expected, seconds))
        reporter.progress(len(rows), KERNELS, "kernels")
        return rows[-1].measured * 1e9

    limits = Limits(
        fp32=measure(lambda: kernels.product(sizes, device, "fp32"), by_peak),
        bf16=measure(lambda: kernels.product(sizes, device, "bf16"), by_peak),
        memory=measure(lambda: kernels.copy(sizes, device), by_peak),
    )
    with tempfile.TemporaryDirectory(dir=folder, prefix="speed-") as temporary:
        for make in _work(sizes, device, Path(temporary)):
            measure(make, limits.expected)
    return rows


def _work(sizes: Sizes, device: Any, place: Path) -> Iterator[Callable[[], Kernel]]:
    yield partial(kernels.write_disk, sizes, place)
    yield partial(kernels.read_disk, place)
    made = workloads.MadeIndex(sizes, device)
    for k in (4, 1024):
        yield partial(workloads.search, made, k)
    del made
    for precision in ("fp32", "bf16"):
        yield partial(workloads.training, sizes, device, precision, place)
    for tokenizer in ("word", "bpe"):
        yield partial(workloads.tokenize, sizes, tokenizer, place)


def _measured(kernel: Kernel, expected: Expected, seconds: float) -> Row:
    """The shortest of its runs; the first one warms up, and counts where it takes all the time."""
    taken: list[float] = []
    began = ended = time.perf_counter()
    while not taken or (ended - began < seconds and len(taken) < MOST_RUNS):
        started, counted = ended, kernel.run()
        ended = time.perf_counter()
        taken.append(counted or ended - started)
    least, source = expected(kernel)
    rate = None if least is None else kernel.amount / least
    measured = kernel.amount / min(taken)
    return Row(kernel.name, kernel.unit, measured, rate, source, len(taken), kernel.operations, kernel.moved)


def _by_peak(most: Peak | None, kernel: Kernel) -> tuple[float | None, str]:
    """By what the maker of the device writes down."""
    rate = None if most is None else getattr(most, kernel.precision) if kernel.operations else most.memory
    work = kernel.operations or kernel.moved
    return (None, "") if most is None or rate is None else (work / rate, most.source)


def _require_room(folder: Path, sizes: Sizes) -> None:
    free = shutil.disk_usage(folder).free
    if free < ROOM * sizes.copied:
        raise ResourceError(f"Measuring writes {size(sizes.copied)}, and the disk of {folder} has {size(free)} free.")
