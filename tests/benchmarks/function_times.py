"""Where the time of a call goes, function by function."""

import cProfile
import pstats
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

BUILT_IN = "~"
"""In place of a file, of functions in C."""


def own_seconds(call: Callable[[], Any]) -> Counter[str]:
    """Seconds in each function of Python itself, and in functions in C that it calls; all on one
    thread.
    """
    threads, profile = torch.get_num_threads(), cProfile.Profile()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        profile.runcall(call)
    torch.set_num_threads(threads)
    seconds = Counter[str]()
    for function, (_, _, own, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if function[0] != BUILT_IN:
            seconds[_name(function)] += own
            continue
        for caller, (_, _, of_caller, _) in callers.items():
            seconds[_name(caller)] += of_caller
    return seconds


def told(seconds: Counter[str], most: int = 16) -> str:
    """A line a function, those that take longest first."""
    total = sum(seconds.values())
    lines = [f"{name:48} {100 * own / total:5.1f} %" for name, own in seconds.most_common(most)]
    return "\n".join([*lines, f"{'all, under the profiler':48} {total:5.2f} s of one thread"])


def _name(function: tuple[str, int, str]) -> str:
    return f"{Path(function[0]).stem}.{function[2]}"
