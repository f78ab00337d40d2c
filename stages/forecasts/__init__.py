"""Forecasts of commands from manifests alone: disk by arithmetic, and an amount of work
proportional to time.

A quantity that cannot be estimated is None, never a guess.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from stages.artifacts.stage import Inputs
from stages.config import StageConfig

C = TypeVar("C", bound=StageConfig)

MAX_SCALE_RATIO = 2.0
"""Largest ratio of two numbers of keys at which the times of a query are still compared."""


@dataclass(frozen=True)
class Cost:
    """Disk and memory of an artifact, and the metrics that later commands need."""

    files: Mapping[str, int] | None = None
    """Bytes of its files; an array counts as one file."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    scratch: int | None = None
    """Peak bytes on the disk, on top of `files`, while it is made."""
    memory: int | None = None
    """Minimum bytes of memory, of the device that computes; None: not known."""
    beside_a_gpu: int = 0
    """Bytes of this memory that are the machine's own where a GPU computes."""
    host: int | None = None
    """Minimum bytes of the machine's own memory, where a GPU computes."""
    approximate: bool = False
    """Whether a sample was scaled up."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Files copied from an input: file -> role."""
    remedy: str = ""
    """Advice: settings that take less."""

    @property
    def disk(self) -> int | None:
        """Bytes that stay."""
        return None if self.files is None else sum(self.files.values())


@dataclass(frozen=True)
class Work:
    """An amount of work; two works with the same signature take time in proportion to their
    amounts.
    """

    amount: int
    unit: str
    signature: Mapping[str, Any]
    scale: int = 0
    """Number of keys that each unit is compared with, where time depends on that, too."""

    def is_like(self, other: "Work") -> bool:
        """Whether the times of the two can be compared."""
        fewer, more = sorted((self.scale, other.scale))
        return self.signature == other.signature and more <= MAX_SCALE_RATIO * fewer


class Forecast(ABC, Generic[C]):
    """The estimates of one command, for resolved settings; inputs may be expected and not made yet."""

    @abstractmethod
    def cost(self, config: C, inputs: Inputs) -> Cost:
        """Estimate disk, memory and metrics."""

    @abstractmethod
    def work(self, config: C, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Estimate the amount of work; `metrics` are those of the artifact, or of its cost."""
