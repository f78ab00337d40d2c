"""How much memory, and how many cores, this machine lets a process have."""

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
MEMINFO, STATM = Path("/proc/meminfo"), Path("/proc/self/statm")


def memory_bytes() -> int:
    """The least of what is built in, what a container may use, and what `ulimit -v` allows."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # `max`: no limit
            limits.append(int(file.read_text()))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min([*limits, *([] if soft == resource.RLIM_INFINITY else [soft])])


def free_memory_bytes() -> int | None:
    """What this process could still take without swapping; None where the system does not tell (Linux does)."""
    with suppress(OSError, ValueError, IndexError):
        line = next((line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")), "")
        return max(0, min(int(line.split()[1]) * 1024, memory_bytes(), _addresses_left()))
    return None


def _addresses_left() -> int:
    """What `ulimit -v` allows beyond what is mapped. Raises: OSError where the system does not tell."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft - mapped


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
