"""Disk and memory that a stage needs, as `memlm plan` shows them before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stages.artifacts.kinds import STAGES
from stages.artifacts.stage import Inputs


@dataclass(frozen=True)
class Needs:
    """Disk and memory that a stage needs, in bytes, and the metrics that later stages' needs
    follow from.
    """

    disk: int | None = None
    """Files of the artifact."""
    scratch: int | None = None
    """Peak of other files while the stage works."""
    memory: int = 0
    """Minimum of the machine's memory; 0: not known."""
    device_memory: int = 0
    """Minimum of memory on the device that runs models; where that is the CPU, it adds to `memory`.
    """
    metrics: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""
    """Settings that need less."""


def needs_of(stage: str, config: Any, inputs: Inputs) -> Needs:
    """The needs of a stage with resolved settings; the inputs may be expected artifacts."""
    calculate = STAGES.needs(stage)
    needs: Needs = Needs() if calculate is None else calculate(config, inputs)
    return needs
