"""Where and how precisely tensors are computed."""

from contextlib import AbstractContextManager, nullcontext

import torch

from stages.allocator import set_thresholds
from stages.errors import ResourceError, UsageError

KEEP_BYTES = 1 << 30


def resolve_device(name: str) -> torch.device:
    """The device behind `auto` (a GPU if there is one), `cpu` or `cuda`.

    Raises: UsageError for other names; ResourceError if `cuda` is asked for and there is none.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"There is no device {name!r}; known: auto, cpu, cuda.")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ResourceError("No CUDA device is usable here; run with --device cpu.")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


def device_name(name: str) -> str:
    """What a device is called in manifests: `cpu`, or a GPU's model."""
    device = resolve_device(name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def resolve_precision(name: str, device: torch.device | str) -> str:
    """`fp32` or `bf16`; `auto` is bf16 on CUDA and fp32 elsewhere."""
    if name != "auto":
        return name
    return "bf16" if torch.device(device).type == "cuda" else "fp32"


def autocast(device: torch.device | str, precision: str) -> AbstractContextManager[None]:
    """Matrix products inside run in `precision` (`fp32` or `bf16`)."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)


def tune_allocator() -> None:
    """Let glibc keep freed memory instead of returning every large tensor to the system.

    Each step frees and asks for the same sizes; without this the pages are mapped and zeroed
    anew each time. Does nothing on other C libraries.
    """
    set_thresholds(mapped=KEEP_BYTES, trimmed=KEEP_BYTES)


def cpu_threads() -> int:
    """Threads that arithmetic uses on the CPU."""
    return torch.get_num_threads()


def gpus() -> list[dict[str, str | int]]:
    """The GPUs that can be used: name, bytes of memory, and bytes of it that are free."""
    found: list[dict[str, str | int]] = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        found.append({"name": torch.cuda.get_device_name(number), "memory": total, "free": free})
    return found
