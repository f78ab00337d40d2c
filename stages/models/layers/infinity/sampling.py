"""Where attention fell on a signal, and places on it that are denser there."""

import torch
from jaxtyping import Float
from torch import Tensor


def even_places(samples: int, like: Tensor) -> Float[Tensor, "1 {samples}"]:
    """m / S, m from 1 to S."""
    return (torch.arange(1, samples + 1, device=like.device, dtype=like.dtype) / samples)[None]


def masses(
    mean: Float[Tensor, "B heads n"], variance: Float[Tensor, "B heads n"], bins: int
) -> Float[Tensor, "B {bins}"]:
    """How much of normal densities lies in each of D equal parts of [0, 1], summed over heads and positions.

    What lies outside counts for none: wide attention would else be attention to both ends.
    """
    edges = torch.arange(bins + 1, device=mean.device, dtype=mean.dtype) / bins
    below = ((edges - mean[..., None]) / (2 * variance[..., None]).sqrt()).erf()
    return below.sum((1, 2)).diff().clamp(min=0) / 2


def sticky_places(weights: Float[Tensor, "B bins"], samples: int) -> Float[Tensor, "B {samples}"]:
    """The (m - 1/2) / S quantiles, m from 1 to S, of a density that is constant in each of D equal parts of [0, 1].

    The samples of the paper are drawn; these have the same density, and are the same however often they are asked for.
    """
    ends = weights.cumsum(1)
    ends = ends / ends[:, -1:]
    wanted = (torch.arange(samples, device=ends.device, dtype=ends.dtype) + 0.5) / samples
    part = torch.searchsorted(ends, wanted.expand(len(ends), -1).contiguous())
    part = part.clamp(max=weights.shape[1] - 1)
    begins = torch.nn.functional.pad(ends, (1, 0))
    begin, end = begins.gather(1, part), ends.gather(1, part)
    return (part + ((wanted - begin) / (end - begin)).clamp(0, 1)) / weights.shape[1]
