"""Limits of memory and cores for a process on this machine, and the return of freed memory to the
system.
"""

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

CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
CPUINFO = Path("/proc/cpuinfo")
BF16_PRODUCTS = frozenset({"amx_bf16", "avx512_bf16", "bf16"})
"""Names of instructions for bf16 products on x86 and ARM."""
MEMINFO = Path("/proc/meminfo")
STATM = Path("/proc/self/statm")


def memory_bytes() -> int:
    """Bytes of memory for this process: the minimum of installed memory, container limit and
    `ulimit -v`.
    """
    # Containers and `ulimit` may allow less than the machine has.
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # `max`: no limit
            limits.append(int(file.read_text()))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min([*limits, *([] if soft == resource.RLIM_INFINITY else [soft])])


def free_memory_bytes() -> int | None:
    """Bytes that this process could still allocate without swapping; None if unknown (known on
    Linux).
    """
    with suppress(OSError, ValueError, IndexError):
        line = next(
            (line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")),
            "",
        )
        free = [int(line.split()[1]) * 1024, memory_bytes()]
        pages = STATM.read_text().split()
        # `ulimit -v` and `ulimit -d` may allow less.
        for limit, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
            soft, _ = resource.getrlimit(limit)
            if soft != resource.RLIM_INFINITY:
                free.append(soft - int(used) * os.sysconf("SC_PAGE_SIZE"))
        return max(0, min(free))
    return None


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def system_load() -> float:
    """Mean number of processes running or waiting to run over the last minute; 0 if unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # not every system reports it
        return 0.0


@cache
def runs_triton(device: str) -> bool:
    """Whether our Triton kernels run on `device`: they need an Nvidia GPU with tf32, and Triton's
    requirements.

    These are Triton itself, and a C compiler and Python's headers to build the launchers of
    kernels.
    """
    compiler = shutil.which(os.environ.get("CC", "gcc")) or shutil.which("clang")
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if device != "cuda" or find_spec("triton") is None or compiler is None or not headers.is_file():
        return False
    import torch

    return torch.version.hip is None and torch.cuda.get_device_capability() >= (8, 0)


def multiplies_bf16() -> bool:
    """Whether the processor has instructions for products in bf16; without them they take longer
    than in fp32.

    True if unknown (known on Linux).
    """
    with suppress(OSError):
        for line in CPUINFO.read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return not BF16_PRODUCTS.isdisjoint(value.split())
    return True


M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3


def set_thresholds(*, mapped: int, trimmed: int | None = None) -> None:
    """Set glibc's thresholds, in bytes; does nothing on other C libraries.

    Args:
        mapped: blocks of at least this size are returned as soon as they are freed
        (`M_MMAP_THRESHOLD`).
        trimmed: free memory at the top of the heap is returned if it has at least this size
        (`M_TRIM_THRESHOLD`).
    """
    mallopt = (
        getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    )
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, mapped)
        if trimmed is not None:
            mallopt(M_TRIM_THRESHOLD, trimmed)


LARGE = 8 << 20
"""Smallest blocks, in bytes, that are returned."""


def return_large_blocks() -> None:
    """Return freed blocks of at least LARGE bytes to the system.

    After the first large block, glibc adapts and keeps such memory, in each of Zarr's reading
    threads: about 100 MB after a few shards. A fixed threshold stops the adaptation.
    """
    set_thresholds(mapped=LARGE)
