"""The basis of a continuous signal on [0, 1]: its functions, fits of vectors to them, and places.

Source: Martins et al. 2022 (∞-former, arXiv:2109.00301), sections 2 and 3.
"""

from functools import lru_cache
from math import pi
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

CONSTANTS = 32
"""Size of each cache of constants; an entry belongs to one basis or fit, dtype and device."""


class Basis(NamedTuple):
    """N normal densities: one of each width at each of N / len(widths) equally spaced centres on
    [0, 1].
    """

    number: int
    widths: tuple[float, ...]

    def at(self, places: Tensor) -> Tensor:
        """Compute ψ at places [...]; result [..., N].

        A density of width 1/2 is 0.798 at its centre. One unit away it is smaller by exp(-2).
        Centres are 0 and 1:

        >>> Basis(2, (0.5,)).at(torch.tensor([0.0]))
        tensor([[0.7979, 0.1080]])
        """
        return self.expected(places, torch.zeros_like(places))

    def expected(self, mean: Tensor, variance: Tensor) -> Tensor:
        """E[ψ(t)] for normally distributed t; mean and variance [...], result [..., N].

        The integral of the product of two normal densities is a normal density of the distance of
        their means. Its variance is the sum of both variances.

        The density has width 3/5, and t mean 0 and variance 16/25. The result is a density of width
        1 at its centre:

        >>> Basis(1, (0.6,)).expected(torch.tensor([0.0]), torch.tensor([0.64]))
        tensor([[0.3989]])
        """
        centres, squares = _centres_and_squares(self, mean.dtype, mean.device)
        spread = variance[..., None, None] + squares
        distance = (mean[..., None] - centres).square()[..., None]
        height = (2 * pi * spread).log() / -2  # in logarithms, one exponential is enough
        return torch.addcmul(height, distance, -0.5 / spread).exp().flatten(-2)


@lru_cache(CONSTANTS)
def _centres_and_squares(
    basis: Basis, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Centres of the functions, [N / widths], and the squared widths."""
    num_centres = basis.number // len(basis.widths)
    # Always on the CPU: parameters are counted on the meta device, and the cache would keep tensors
    # without values.
    centres = torch.linspace(0, 1, num_centres, dtype=torch.float64, device="cpu")
    widths = torch.tensor(basis.widths, dtype=torch.float64, device="cpu")
    return centres.to(device, dtype), widths.square().to(device, dtype)


class Fit(NamedTuple):
    """A ridge regression of vectors at n positions on the basis.

    The first `samples` positions are spread over (0, contraction], and the `new` ones over
    (contraction, 1].
    """

    basis: Basis
    ridge: float
    samples: int
    new: int
    contraction: float

    def positions(self) -> Float[Tensor, " n"]:
        """Positions of the vectors on [0, 1], float64.

        Two samples of the old signal are in the first half, and two new vectors in the second:

        >>> Fit(Basis(1, (0.1,)), ridge=1.0, samples=2, new=2, contraction=0.5).positions().tolist()
        [0.25, 0.5, 0.75, 1.0]
        """
        old_numbers = torch.arange(1, self.samples + 1, dtype=torch.float64, device="cpu")
        new_numbers = torch.arange(1, self.new + 1, dtype=torch.float64, device="cpu")
        # Either part may be empty.
        old = old_numbers / max(1, self.samples)
        new = new_numbers / max(1, self.new)
        return torch.cat((self.contraction * old, self.contraction + (1 - self.contraction) * new))

    def matrix(self, like: Tensor) -> Float[Tensor, "N n"]:
        """Gᵀ, the matrix that turns vectors [n, d] into coefficients [N, d]; solved in float64."""
        return _matrix(self, like.dtype, like.device)


@lru_cache(CONSTANTS)
def _matrix(fit: Fit, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Solve the ridge regression of a fit.

    As many positions again lie outside of [0, 1], half on each side, with zero vectors: there the
    signal ends.

    Source: Martins et al. 2022 (arXiv:2109.00301), equation 6; the padding is that of the authors'
    code.
    """
    inside = fit.positions()
    aside = torch.arange(1, (len(inside) + 1) // 2 + 1, dtype=torch.float64, device="cpu")
    aside = aside / (2 * len(aside))
    psi = fit.basis.at(torch.cat((inside, -aside, 1 + aside))).T
    # Neighbouring functions, and so rows of the matrix, are nearly equal: in float32 the solution
    # would be lost.
    gram = psi @ psi.T + fit.ridge * torch.eye(len(psi), dtype=torch.float64, device="cpu")
    return torch.linalg.solve(gram, psi[:, : len(inside)]).to(device, dtype)


def even_places(samples: int, like: Tensor) -> Float[Tensor, "1 {samples}"]:
    """Evenly spaced places m / S, for m from 1 to S.

    >>> even_places(4, torch.zeros(1))
    tensor([[0.2500, 0.5000, 0.7500, 1.0000]])
    """
    return (torch.arange(1, samples + 1, device=like.device, dtype=like.dtype) / samples)[None]


def masses(
    mean: Float[Tensor, "B heads n"], variance: Float[Tensor, "B heads n"], bins: int
) -> Float[Tensor, "B {bins}"]:
    """Mass of normal densities in each of D equal parts of [0, 1], summed over heads and positions.

    Mass outside of [0, 1] is dropped. Otherwise wide attention would count as attention to both
    ends.

    Narrow attention to the middle is shared by the two adjacent parts:

    >>> masses(torch.tensor([[[0.5]]]), torch.tensor([[[1e-4]]]), 4)
    tensor([[0.0000, 0.5000, 0.5000, 0.0000]])
    """
    edges = torch.arange(bins + 1, device=mean.device, dtype=mean.dtype) / bins
    # The distribution at each edge is (1 + erf) / 2; the constant cancels in differences.
    deviation = (2 * variance[..., None]).sqrt()
    errors = ((edges - mean[..., None]) / deviation).erf()
    return errors.sum((1, 2)).diff().clamp(min=0) / 2


def sticky_places(weights: Float[Tensor, "B bins"], samples: int) -> Float[Tensor, "B {samples}"]:
    """The (m - 1/2) / S quantiles, m from 1 to S, of a density that is constant in each of D equal
    parts of [0, 1].

    The paper draws samples at random. These quantiles have the same density, but are deterministic.
    If all weights are 0, the density is uniform.

    The first half received three quarters of the attention, so it has three of the four samples:

    >>> sticky_places(torch.tensor([[3.0, 1.0]]), 4)
    tensor([[0.0833, 0.2500, 0.4167, 0.7500]])
    """
    num_rows, num_bins = weights.shape
    # Cumulative distribution at the end of each bin. The smallest number keeps a sum of zeros from
    # being divided by zero.
    smallest = torch.finfo(weights.dtype).tiny
    sums = (weights + smallest).cumsum(1)
    ends = sums / sums[:, -1:]

    numbers = torch.arange(samples, device=ends.device, dtype=ends.dtype)
    quantiles = (numbers + 0.5) / samples
    quantiles_of_row = quantiles.expand(num_rows, -1).contiguous()
    bins = torch.searchsorted(ends, quantiles_of_row)
    # Rounding may leave the last end below a quantile.
    bins = bins.clamp(max=num_bins - 1)

    # The distribution is linear within a bin.
    starts = torch.nn.functional.pad(ends, (1, 0))
    start = starts.gather(1, bins)
    end = ends.gather(1, bins)
    fraction = ((quantiles - start) / (end - start)).clamp(0, 1)
    return (bins + fraction) / num_bins
