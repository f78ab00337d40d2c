"""What time it is once a device has done its work."""

import time

import torch


def now(device: torch.device) -> float:
    """Seconds of a clock, once all work given to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
