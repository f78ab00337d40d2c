"""How much memory, and how many cores, this machine lets a process have; and when freed memory goes back to it."""

import ctypes
import os
import resource
import shutil
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
CPUINFO = Path("/proc/cpuinfo")
BF16_PRODUCTS = frozenset({"amx_bf16", "avx512_bf16", "bf16"})
"""Names of such instructions on x86 and ARM."""
MEMINFO, STATM = Path("/proc/meminfo"), Path("/proc/self/statm")


def memory_bytes() -> int:
    """The least of what is built in, what a container may use, and what `ulimit -v` allows."""
    # Containers and `ulimit` may allow less than the machine has.
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # `max`: no limit
            limits.append(int(file.read_text()))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min([*limits, *([] if soft == resource.RLIM_INFINITY else [soft])])


def free_memory_bytes() -> int | None:
    """Bytes that this process could still take without swapping; None where the system does not tell (Linux does)."""
    with suppress(OSError, ValueError, IndexError):
        line = next((line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")), "")
        return max(0, min(int(line.split()[1]) * 1024, memory_bytes(), _left_of_limits()))
    return None


def _left_of_limits() -> int:
    """Bytes that `ulimit -v` and `ulimit -d` still allow. Raises: OSError where the system does not tell."""
    pages, left = STATM.read_text().split(), [sys.maxsize]
    for limit, taken in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            left.append(soft - int(taken) * os.sysconf("SC_PAGE_SIZE"))
    return min(left)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def system_load() -> float:
    """Processes that ran or waited to run, on average over the last minute; 0 where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # not every system has it
        return 0.0


@cache
def runs_triton(device: str) -> bool:
    """Whether our kernels in Triton run on `cpu` or `cuda`: on a GPU of Nvidia that has tf32, with what Triton needs.

    That is, besides itself, a C compiler and Python's headers, to build what launches a kernel.
    """
    compiler = shutil.which(os.environ.get("CC", "gcc")) or shutil.which("clang")
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if device != "cuda" or find_spec("triton") is None or compiler is None or not headers.is_file():
        return False
    import torch

    return torch.version.hip is None and torch.cuda.get_device_capability() >= (8, 0)


def multiplies_bf16() -> bool:
    """Whether the processor has instructions for products in bf16; without them they take longer than in fp32.

    True where the system does not tell (Linux does).
    """
    with suppress(OSError):
        for line in CPUINFO.read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return not BF16_PRODUCTS.isdisjoint(value.split())
    return True


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def set_thresholds(*, mapped: int, trimmed: int | None = None) -> None:
    """Set glibc's thresholds, in bytes; does nothing on other C libraries.

    Args:
        mapped: blocks of this size are returned as soon as they are freed (`M_MMAP_THRESHOLD`).
        trimmed: free memory at the top of the heap is returned from this size on (`M_TRIM_THRESHOLD`).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, mapped)
        if trimmed is not None:
            mallopt(M_TRIM_THRESHOLD, trimmed)


LARGE, PIECE = 8 << 20, 2 << 20
"""Bytes of blocks that are returned; PIECE: where lists are read piece by piece, and little is kept between them."""


def return_large_blocks(size: int = LARGE) -> None:
    """Let blocks of 8 MB and more, or of another size, go back to the system when they are freed.

    glibc learns from the first large block to keep such memory, once for every thread that Zarr reads
    with: some 100 MB after a few shards. A fixed threshold ends the learning.
    """
    set_thresholds(mapped=size)
