"""The modulated classifier: p(y | x) = softmax(W (h(x) ⊙ φ(x)) + b), φ(x) being gates that a frozen encoder gives."""

from typing import cast

from torch import Tensor, nn

from stages.models.heads.classifier import Classifier, pooled
from stages.models.heads.modulated_settings import ModulatedSettings


class Modulated(Classifier):
    """φ(x) = σ(W_2 ReLU(W_1 r(x))), r(x) being the pooled hidden states of the frozen encoder.

    Source: Holla et al. 2020 (arXiv:2009.04891), section 4.2, after ANML (Beaulieu et al. 2020).
    """

    def __init__(self, width: int, settings: ModulatedSettings) -> None:
        super().__init__(width, settings)
        self.modulator = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.Sigmoid())

    def forward(self, hidden: Tensor, mask: Tensor | None, frozen: Tensor | None = None) -> Tensor:
        """`frozen`: hidden states of the frozen encoder, [B, L, d]."""
        own, others = (pooled(states, mask, self.pool) for states in (hidden, cast(Tensor, frozen)))
        return nn.functional.linear(own * self.modulator(others), self.weight, self.bias)
