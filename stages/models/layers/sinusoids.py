"""Fixed vectors for positions, or for distances between them."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def sinusoids(
    length: int, width: int, device: torch.device | None = None, first: int = 0
) -> Float[Tensor, "{length} {width}"]:
    """Vectors [length, width] for the positions from `first`: sines in the first half, cosines in
    the second.

    >>> sinusoids(2, 4)[0].tolist()
    [0.0, 0.0, 1.0, 1.0]

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.5, with the halves not interleaved.
    """
    num_rates = width // 2
    # From 1 down to 1 / 10,000, in equal steps of the exponent.
    step = -math.log(10_000) / max(1, num_rates - 1)
    rates = torch.exp(torch.arange(num_rates, device=device) * step)

    positions = torch.arange(first, first + length, device=device)
    angles = positions[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), 1)
