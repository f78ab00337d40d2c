"""Names of devices and precisions, resolved without torch where there is no GPU."""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

from stages.errors import ResourceError, UsageError

CUDA_DRIVER = "libcuda.so.1"
ROCM_DRIVER = Path("/dev/kfd")


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


def now(device: Any) -> float:
    """Wait until a torch device has finished its work, and return the time of a clock in seconds."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
    return time.perf_counter()
