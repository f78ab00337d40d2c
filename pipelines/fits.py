"""Whether what tasks need fits the disk and the memory of this machine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelines.estimates import CPU, DONE, Estimate
from stages.numbers import size

USABLE_PERCENT = 98
"""Share of a disk that plans may fill."""


@dataclass(frozen=True)
class Fit:
    """Needs of all tasks together, and the machine's disk and memory."""

    stays: int
    at_once: int
    """Peak bytes on the disk, of all that is not there yet."""
    complete: bool
    """Whether every task is counted, or some are not known."""
    free: int
    memory: Mapping[str, int]
    """Bytes of memory by device."""
    problems: tuple[str, ...]


def fits(found: Sequence[Estimate], free: int, memory: Mapping[str, int]) -> Fit:
    """Compare what is known to be needed with what there is.

    Args:
        free: bytes of the disk.
        memory: bytes of the devices that are used, by name.
    """
    stays = at_once = 0
    new = [estimate for estimate in found if estimate.state != DONE]
    for estimate in new:
        at_once = max(at_once, stays + estimate.missing)
        stays += max(0, (estimate.disk or 0) - estimate.written)
    problems: list[str] = []
    if at_once > free * USABLE_PERCENT // 100:
        largest = max(new, key=lambda estimate: estimate.missing)
        problems.append(
            f"the disk has {size(free)} free, and {size(at_once)} are needed at once, most of it for "
            f"{largest.name}{_hint(largest)}"
        )
    for estimate in new:
        problems += _too_large(estimate, memory)
    complete = all(estimate.disk is not None and estimate.scratch is not None for estimate in new)
    return Fit(stays, at_once, complete, free, memory, tuple(problems))


def _too_large(estimate: Estimate, memory: Mapping[str, int]) -> Iterator[str]:
    """Sentences about memory that does not suffice."""
    for device, needed in ((CPU, estimate.memory), (estimate.device, estimate.gpu_memory)):
        limit = memory.get(device)
        if needed is not None and limit is not None and needed > limit:
            needs = f"{estimate.name} takes at least {size(needed)} of memory"
            yield f"{needs}, {device} has {size(limit)}{_hint(estimate)}"


def _hint(estimate: Estimate) -> str:
    return f" ({estimate.remedy})" if estimate.remedy else ""
