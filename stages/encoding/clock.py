"""Reads the time once a device has finished its work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def now(device: torch.device) -> float:
    """Seconds of a clock, once all work given to the device is done."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
    return time.perf_counter()


class Stopwatch:
    """Times stretches of work on a device, one behind the other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last = now(device)

    def lap(self) -> float:
        """Seconds since the lap before, or the start."""
        before, self._last = self._last, now(self._device)
        return self._last - before
