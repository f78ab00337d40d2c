"""Dropout whose random bits are cheap on a CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zeroes a share p of the elements while training and scales the rest by 1 / (1 - p).

    On CPU each element's fate takes 16 random bits, drawn 64 at a time: a tenth of the time of
    torch's own sampling, for a p that is exact to 2^-16.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped = min(round(self.p * LEVELS), LEVELS - 1)  # were all dropped, the rest could not be scaled
        return x * keep_mask(x.shape, dropped).to(x.dtype).mul_(LEVELS / (LEVELS - dropped))


def keep_mask(shape: torch.Size, dropped: int) -> Tensor:
    """Independent booleans, true with probability 1 - dropped / 2^16, from torch's CPU generator.

    >>> keep_mask(torch.Size([2]), dropped=0)
    tensor([True, True])
    """
    numbers = torch.empty(-(-shape.numel() // 4) * 4, dtype=torch.int16)
    if torch.compiler.is_compiling():
        _draw_opaque(numbers)
    else:
        _draw(numbers)
    # An int16 begins at -2^15: its lowest values are those that drop.
    return (numbers[: shape.numel()] >= dropped - LEVELS // 2).view(shape)


def _draw(numbers: Tensor) -> None:
    """Fill int16 [4 n] with random bits."""
    numbers.view(torch.int64).random_(-(1 << 63), None)


# A compiler has no way to fill a tensor with random numbers of 64 bits, and calls this as it is: with the same bits.
_draw_opaque = torch.library.custom_op("memlm::draw", _draw, mutates_args={"numbers"})
