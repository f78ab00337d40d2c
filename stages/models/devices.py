"""Devices and precisions of computation."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from stages.errors import ResourceError, UsageError
from stages.machine import set_thresholds

if TYPE_CHECKING:
    import torch

KEEP_BYTES = 1 << 30
CUDA_DRIVER, ROCM_DRIVER = "libcuda.so.1", Path("/dev/kfd")


def device_type(name: str) -> str:
    """Resolve `auto` (a GPU if there is one), `cpu` or `cuda` to `cpu` or `cuda`.

    Torch, which takes a second to load, is imported only if the driver of a GPU is installed.
    Raises: UsageError for other names; ResourceError if `cuda` is asked for and there is none.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"There is no device {name!r}; known: auto, cpu, cuda.")
    available = False
    if name != "cpu" and ("torch" in sys.modules or _has_driver()):
        import torch

        available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ResourceError("No CUDA device is usable here; run with --device cpu.")
    return "cuda" if available else "cpu"


def _has_driver() -> bool:
    """Whether a GPU may be usable: the library of its driver, which torch would load, is installed."""
    # Other systems have no cheap test, so torch must be asked.
    if os.name != "posix" or ROCM_DRIVER.exists():
        return True
    try:
        ctypes.CDLL(CUDA_DRIVER)
    except OSError:
        return False
    return True


def resolve_device(name: str) -> torch.device:
    """The torch device for `auto`, `cpu` or `cuda`. Raises: as `device_type`."""
    import torch

    return torch.device(device_type(name))


def device_name(name: str) -> str:
    """Name of a device in manifests: `cpu`, or a GPU's model."""
    if device_type(name) == "cpu":
        return "cpu"
    import torch

    return torch.cuda.get_device_name()


def resolve_precision(name: str, device: str) -> str:
    """`fp32` or `bf16`; `auto` is bf16 on the device type `cuda` and fp32 elsewhere."""
    if name != "auto":
        return name
    return "bf16" if device == "cuda" else "fp32"


def autocast(device: torch.device | str, precision: str) -> AbstractContextManager[None]:
    """Context in which matrix products run in `precision` (`fp32` or `bf16`)."""
    if precision == "fp32":
        return nullcontext()
    import torch

    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)


def tune_allocator() -> None:
    """Let glibc keep freed memory instead of returning every large tensor to the system.

    Each step frees and allocates the same sizes. Without this, the pages are mapped and zeroed
    again each time. Does nothing on other C libraries.
    """
    set_thresholds(mapped=KEEP_BYTES, trimmed=KEEP_BYTES)


def gpus() -> list[dict[str, str | int]]:
    """The usable GPUs: name, and total and free memory in bytes."""
    import torch

    found: list[dict[str, str | int]] = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        found.append({"name": torch.cuda.get_device_name(number), "memory": total, "free": free})
    return found


def random_state() -> dict[str, torch.Tensor]:
    """State of torch's random generators: of the CPU and, if it is in use, of the current GPU."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    # An unused GPU is left alone, because its initialization takes seconds and hundreds of MB.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    """Restore the state of torch's random generators from `random_state`."""
    import torch

    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def now(device: torch.device) -> float:
    """Wait until the device has finished its work, and return the time of a clock in seconds."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
    return time.perf_counter()


class Stopwatch:
    """Measures consecutive intervals of work on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last = now(device)

    def lap(self) -> float:
        """Seconds since the previous lap, or the start."""
        before, self._last = self._last, now(self._device)
        return self._last - before
