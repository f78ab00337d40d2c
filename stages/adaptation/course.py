"""How learning goes over a split: the latest losses, and where it diverged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan

import torch
from torch import Tensor

RECENT = 200
"""Tokens of the past whose mean loss says whether learning diverges."""
DIVERGED = 1.5
"""This mean loss, in units of a uniform guess, at which learning has diverged."""
LOSS = "recent loss"
PLACES = "diverged at"
"""Names of the tensors of its state."""


@dataclass
class Course:
    """The latest losses of a model that learns, and where it diverged so far."""

    recent: float = 0.0
    """Decayed mean of the losses of the latest tokens, in nats."""
    diverged_at: list[int] = field(default_factory=list)
    """First tokens of the segments at which learning diverged."""

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> "Course":
        """The course that `state` was of."""
        return cls(float(state[LOSS]), state[PLACES].tolist())

    def add(self, loss: float, tokens: int) -> None:
        """Take in the mean loss of a segment, in nats."""
        share = min(1.0, tokens / RECENT)
        self.recent += share * (loss - self.recent)

    def diverges(self, uniform: float) -> bool:
        """Whether the latest losses are far above that of a uniform guess, in nats, or no number."""
        return isnan(self.recent) or self.recent > DIVERGED * uniform

    def begin_again(self, place: int) -> None:
        """Note that learning diverged at a token, and that it begins anew behind it."""
        self.recent = 0.0
        self.diverged_at.append(place)

    def state(self) -> dict[str, Tensor]:
        """Tensors from which `of` makes the same course."""
        return {
            LOSS: torch.tensor(self.recent, dtype=torch.float64),
            PLACES: torch.tensor(self.diverged_at, dtype=torch.int64),
        }
