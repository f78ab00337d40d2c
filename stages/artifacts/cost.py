"""What a piece of work costs, estimated before it starts: bytes by arithmetic, and work that time is proportional to.

What cannot be estimated is None, never a guess.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_SCALED = 2.0
"""Beyond, a search among more keys, or fewer, says nothing of the time of another one."""


@dataclass(frozen=True)
class Cost:
    """Room that making an artifact takes, and what stages that read it ask of it."""

    files: Mapping[str, int] | None = None
    """Bytes of the files that it will have, without the smallest; an array counts as one file."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """As far as the next stages ask for them."""
    scratch: int | None = None
    """Most bytes on the disk, beside those of `files`, while it is made."""
    memory: int | None = None
    """Bytes of memory, of the device that computes, without which it cannot be made; it takes more."""
    host: int | None = None
    """The same of the machine, where a GPU computes."""
    approximate: bool = False
    """Whether it follows from a sample."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Files that are those of an input: file -> role."""
    remedy: str = ""
    """What takes less room."""
    gpu_remedy: str = ""
    """What takes less of a GPU's memory."""

    @property
    def disk(self) -> int | None:
        """Bytes that stay."""
        return None if self.files is None else sum(self.files.values())


@dataclass(frozen=True)
class Effort:
    """Work that takes time in proportion, and what must be equal for two times to be compared."""

    amount: int
    unit: str
    kin: Mapping[str, Any]
    scale: int = 0
    """Size of what every unit is compared with, on which its time depends as well."""

    def is_like(self, other: "Effort") -> bool:
        """Whether what is searched is about as large."""
        if not self.scale or not other.scale:
            return self.scale == other.scale
        return max(self.scale, other.scale) <= MOST_SCALED * min(self.scale, other.scale)
