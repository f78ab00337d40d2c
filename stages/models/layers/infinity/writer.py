"""A continuous signal that is contracted to make room for new positions."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.layers.infinity.basis import Basis, Fit
from stages.models.layers.infinity.sampling import even_places, sticky_places
from stages.models.layers.infinity.settings import InfinitySettings


class Gate(nn.Module):
    """σ(conv(x)) ⊙ x, a convolution of width 3 that sees zeros beyond the ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.taps = nn.Linear(3 * width, width)

    def initialize(self) -> None:
        """It begins half open on average."""
        nn.init.xavier_uniform_(self.taps.weight)
        nn.init.zeros_(self.taps.bias)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """[B, n, d], n may be 0 -> [B, n, d]."""
        padded = F.pad(x, (0, 0, 1, 1))
        gate: Tensor = self.taps(torch.cat((padded[:, :-2], padded[:, 1:-1], padded[:, 2:]), 2))
        return gate.sigmoid() * x


class SignalWriter(nn.Module):
    """B = G [X̄(t_1) … X̄(t_S); gated new vectors]: the old signal X̄, sampled, on [0, τ], what is new behind it.

    A signal that is zero holds nothing yet: what is new then takes all of [0, 1].

    Source: Martins et al. 2022 (arXiv:2109.00301), sections 3.1 and 3.2.
    """

    def __init__(self, width: int, basis: Basis, settings: InfinitySettings) -> None:
        super().__init__()
        self.basis, self.samples = basis, settings.samples
        self.ridge, self.contraction = settings.ridge, settings.contraction
        self.gate = Gate(width)

    def forward(
        self, signal: Float[Tensor, "B N d"], new: Float[Tensor, "B n d"], weights: Tensor | None = None
    ) -> Float[Tensor, "B N d"]:
        """Args:
        new: the latest vectors, the oldest first; none of them leave the signal as it is.
        weights: how much attention each bin of the old signal had, [B, D]; None: it is sampled evenly.
        """
        gated = self.gate(new)
        if not new.shape[1]:
            return signal + gated.sum()  # 0, of which the gate is a part: data-parallel wrappers want it in every step
        places = even_places(self.samples, signal) if weights is None else sticky_places(weights, self.samples)
        fitted = Fit(self.basis, self.ridge, self.samples, new.shape[1], self.contraction).matrix(signal)
        old = fitted[:, : self.samples] @ (self.basis.at(places) @ signal)
        begun = Fit(self.basis, self.ridge, 0, new.shape[1], 0.0).matrix(signal) @ gated
        empty = ~signal.any(2).any(1)[:, None, None]
        return torch.where(empty, begun, old + fitted[:, self.samples :] @ gated)
