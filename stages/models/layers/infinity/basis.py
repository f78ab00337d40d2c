"""Gaussian functions on [0, 1] as a basis of signals, and their fit to vectors at given positions."""

from functools import lru_cache
from math import pi
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

CONSTANTS = 32
"""That are kept of a kind: one for each basis, number of positions and kind of numbers."""


class Basis(NamedTuple):
    """N functions: normal densities, one of each width at each of N / len(widths) equally spaced centres."""

    number: int
    widths: tuple[float, ...]

    def at(self, places: Tensor) -> Tensor:
        """ψ of places [...], [..., N]."""
        return self.expected(places, torch.zeros_like(places))

    def expected(self, mean: Tensor, variance: Tensor) -> Tensor:
        """E[ψ(t)] of t that is normally distributed, mean and variance [...], [..., N].

        The product of two normal densities integrates to a normal density of the distance of their means, the variance
        of which is the sum of theirs.
        """
        centres, squares = _centres_and_squares(self, mean.dtype, mean.device)
        spread = variance[..., None, None] + squares
        distance = (mean[..., None] - centres).square()[..., None]
        height = (2 * pi * spread).log() / -2
        return torch.addcmul(height, distance, -0.5 / spread).exp().flatten(-2)


@lru_cache(CONSTANTS)
def _centres_and_squares(basis: Basis, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where functions stand, [N / widths], and their squared widths."""
    centres = torch.linspace(0, 1, basis.number // len(basis.widths), dtype=torch.float64, device="cpu")
    squares = torch.tensor(basis.widths, dtype=torch.float64, device="cpu").square()
    return centres.to(device, dtype), squares.to(device, dtype)


class Fit(NamedTuple):
    """A ridge regression of vectors at n positions on the basis.

    The first `samples` positions are spread over (0, contraction], the other `new` ones over (contraction, 1].
    """

    basis: Basis
    ridge: float
    samples: int
    new: int
    contraction: float

    def positions(self) -> Float[Tensor, " n"]:
        """Positions of the vectors on [0, 1], float64."""
        old = torch.arange(1, self.samples + 1, dtype=torch.float64, device="cpu") / max(1, self.samples)
        added = torch.arange(1, self.new + 1, dtype=torch.float64, device="cpu") / max(1, self.new)
        return torch.cat((self.contraction * old, self.contraction + (1 - self.contraction) * added))

    def matrix(self, like: Tensor) -> Float[Tensor, "N n"]:
        """Gᵀ: what vectors [n, d] are multiplied with to get coefficients [N, d]; made in float64."""
        return _matrix(self, like.dtype, like.device)


@lru_cache(CONSTANTS)
def _matrix(fit: Fit, dtype: torch.dtype, device: torch.device) -> Tensor:
    """As many positions again, outside of [0, 1], have vectors of 0: the signal ends there.

    Source: Martins et al. 2022 (arXiv:2109.00301), equation 6; the padding is that of the authors' code.
    """
    inside = fit.positions()
    aside = torch.arange(1, (len(inside) + 1) // 2 + 1, dtype=torch.float64, device="cpu")
    aside = aside / (2 * len(aside))
    psi = fit.basis.at(torch.cat((inside, -aside, 1 + aside))).T
    gram = psi @ psi.T + fit.ridge * torch.eye(len(psi), dtype=torch.float64, device="cpu")
    return torch.linalg.solve(gram, psi[:, : len(inside)]).to(device, dtype)
