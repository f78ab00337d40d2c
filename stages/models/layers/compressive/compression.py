"""Functions that make one slot of c inputs."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

POOLS: dict[str, Callable[[Tensor, int], Tensor]] = {"mean": torch.mean, "max": torch.amax}


class Convolution(nn.Module):
    """A convolution with as long a stride as kernel; it begins as the mean."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        self.rate = rate
        self.taps = nn.Linear(rate * width, width)

    def initialize(self) -> None:
        """Each tap is the identity / c."""
        with torch.no_grad():
            width = self.taps.out_features
            self.taps.weight.copy_(torch.eye(width).repeat(1, self.rate) / self.rate)
            self.taps.bias.zero_()

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B slots d"]:
        """[B, n, d], n a multiple of c -> [B, n / c, d]."""
        slots: Tensor = self.taps(x.unflatten(1, (-1, self.rate)).flatten(2))
        return slots


class Pooling(nn.Module):
    """The mean of c inputs, or the largest of each dimension."""

    def __init__(self, pool: Callable[[Tensor, int], Tensor], rate: int) -> None:
        super().__init__()
        self.pool, self.rate = pool, rate

    def initialize(self) -> None:
        """Nothing is learnt."""

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B slots d"]:
        """[B, n, d], n a multiple of c -> [B, n / c, d]."""
        return self.pool(x.unflatten(1, (-1, self.rate)), 2)


def compressor(name: str, width: int, rate: int) -> Convolution | Pooling:
    """The function that settings name."""
    if name == "conv":
        return Convolution(width, rate)
    return Pooling(POOLS[name], rate)
