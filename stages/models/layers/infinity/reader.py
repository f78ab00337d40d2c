"""Attention to a continuous signal: each head of each query looks at one place, more or less closely."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.models.layers.infinity.basis import Basis

SMALLEST_VARIANCE = 1e-6


class Look(NamedTuple):
    """Read-outs of a signal by n queries, and the normal density on [0, 1] that each head read with."""

    hidden: Float[Tensor, "B n d"]
    """0 where a query does not see the signal."""
    mean: Float[Tensor, "B heads n"]
    variance: Float[Tensor, "B heads n"]


class SignalReader(nn.Module):
    """z = E[V ψ(t)] by head, t normally distributed: its mean σ(a·s) and variance softplus(b·s) follow from s = K q.

    Keys K and values V are projections of the coefficients of the signal; a and b are shared by heads.

    Source: Martins et al. 2022 (arXiv:2109.00301), equations 8 to 12.
    """

    def __init__(self, width: int, heads: int, basis: Basis) -> None:
        super().__init__()
        self.heads, self.basis = heads, basis
        self.focus = nn.Linear(basis.number, 2, bias=False)
        self.keys = nn.Linear(width, width, bias=False)
        self.values = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(
        self, q: Float[Tensor, "B heads n d_head"], signal: Float[Tensor, "B N d"], seen: Bool[Tensor, "B n"]
    ) -> Look:
        """`seen`: the queries that see the signal."""
        mean, variance = self._focused(q, signal)
        values = self.values(signal).unflatten(2, (self.heads, -1)).transpose(1, 2)
        read = self.basis.expected(mean, variance) @ values
        return Look(self.out(read.transpose(1, 2).flatten(2)) * seen[..., None], mean, variance)

    def _focused(self, q: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [B, heads, n].

        a·(K q) is (aᵀK)·q: no score of a query and a function is ever made.
        """
        focused = self.keys(self.focus(signal.transpose(1, 2)).transpose(1, 2)).unflatten(2, (self.heads, -1))
        place, spread = torch.einsum("bhne,bche->cbhn", q, focused) * q.shape[3] ** -0.5
        return place.sigmoid(), F.softplus(spread).clamp(min=SMALLEST_VARIANCE)
