"""Forecasts of commands from manifests alone: disk by arithmetic, and an amount of work proportional to time.

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
    """An amount of work; two works with the same signature take time in proportion to their amounts."""

    amount: int
    unit: str
    signature: Mapping[str, Any]
    scale: int = 0
    """Number of keys that each unit is compared with, where time depends on that, too."""

    def is_like(self, other: "Work") -> bool:
        """Whether the times of the two can be compared."""
        if self.signature != other.signature:
            return False
        if not self.scale or not other.scale:
            return self.scale == other.scale
        return max(self.scale, other.scale) <= MAX_SCALE_RATIO * min(self.scale, other.scale)


class Forecast(ABC, Generic[C]):
    """The estimates of one command, for resolved settings; inputs may be expected and not made yet."""

    @abstractmethod
    def cost(self, config: C, inputs: Inputs) -> Cost:
        """Estimate disk and metrics."""

    def memory(self, config: C, inputs: Inputs) -> int | None:
        """Estimate the minimum bytes of memory, of the device that computes; None: not known."""
        return None

    def beside_a_gpu(self, config: C, inputs: Inputs) -> int:
        """Bytes of this memory that are the machine's own where a GPU computes."""
        return 0

    @abstractmethod
    def work(self, config: C, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Estimate the amount of work; `metrics` are those of the artifact, or of its cost."""
