"""Computation on a device: precision, random state, memory and time."""

from contextlib import AbstractContextManager, nullcontext

import torch

from stages.machine import set_thresholds
from stages.models.devices import device_type, now

KEEP_BYTES = 1 << 30


def resolve_device(name: str) -> torch.device:
    """The torch device for `auto`, `cpu` or `cuda`. Raises: as `device_type`."""
    return torch.device(device_type(name))


def autocast(device: torch.device | str, precision: str) -> AbstractContextManager[None]:
    """Context in which matrix products run in `precision` (`fp32` or `bf16`)."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)


def tune_allocator() -> None:
    """Let glibc keep freed memory instead of returning every large tensor to the system.

    Each step frees and allocates the same sizes. Without this, the pages are mapped and zeroed
    again each time. Does nothing on other C libraries.
    """
    set_thresholds(mapped=KEEP_BYTES, trimmed=KEEP_BYTES)


def gpus() -> list[dict[str, str | int]]:
    """The usable GPUs: name, and total and free memory in bytes."""
    devices: list[dict[str, str | int]] = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        devices.append({"name": torch.cuda.get_device_name(number), "memory": total, "free": free})
    return devices


def random_state() -> dict[str, torch.Tensor]:
    """State of torch's random generators: of the CPU and, if it is in use, of the current GPU."""
    state = {"cpu": torch.get_rng_state()}
    # An unused GPU is left alone, because its initialization takes seconds and hundreds of MB.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    """Restore the state of torch's random generators from `random_state`."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


class Stopwatch:
    """Measures consecutive intervals of work on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last = now(device)

    def lap(self) -> float:
        """Seconds since the previous lap, or the start."""
        before = self._last
        self._last = now(self._device)
        return self._last - before
