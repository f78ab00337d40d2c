"""The kernels that are timed: their operations and bytes, from which the expected time follows, and the work
itself."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch


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
    megabytes: float
    """Megabytes of text."""


CPU_SIZES = Sizes(
    product=2048, copied=512 << 20, keys=1 << 18, lists=1024, probe=64, queries=4096, key_dim=128,
    layers=4, width=256, vocabulary=10_000, segment=256, batch=2048, steps=5, megabytes=8.0,
)  # fmt: skip
GPU_SIZES = Sizes(
    product=8192, copied=2 << 30, keys=1 << 20, lists=2048, probe=64, queries=1 << 15, key_dim=1024,
    layers=16, width=1024, vocabulary=33_278, segment=512, batch=16_384, steps=10, megabytes=8.0,
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


def product(sizes: Sizes, device: torch.device, precision: str) -> Kernel:
    """A product of square matrices: 2 n^3 operations, 3 n^2 numbers."""
    n, dtype = sizes.product, torch.float32 if precision == "fp32" else torch.bfloat16
    one, other = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))

    def run() -> None:
        torch.mm(one, other)
        finish(device)

    operations = 2.0 * n**3
    moved = 3.0 * n**2 * dtype.itemsize
    return Kernel(f"product of matrices, {precision}", "GFLOP/s", operations / 1e9, run, operations, moved, precision)


def copy(sizes: Sizes, device: torch.device) -> Kernel:
    """A copy in memory: every byte is read once and written once."""
    source = torch.zeros(sizes.copied, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)

    def run() -> None:
        target.copy_(source)
        finish(device)

    return Kernel("memory, read and written", "GB/s", 2 * sizes.copied / 1e9, run, moved=2.0 * sizes.copied)


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
