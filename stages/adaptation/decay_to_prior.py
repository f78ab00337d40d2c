"""All weights learn by their gradients, scaled by those of training, and are pulled back to training.

    θ ← θ - η g / (M + ε) + min(1, γ R) ⊙ (θ_0 - θ)            M = √(mean of g²), R = M / mean(M)

g is the gradient of the mean loss of the segment that was scored, M the root mean square of such
gradients in training text, θ_0 the weights of training. mean(M) is the mean over tensors of their
means, as in the authors' code.

ε is a share of mean(M). The authors' is a constant, 2e-5, about a tenth of the mean(M) of an LSTM.
Of a Transformer it is a fiftieth: weights that training hardly moved then take steps that diverge.

Source: Krause et al. 2018 (Dynamic evaluation of neural sequence models, arXiv:1709.07432),
section 4, "RMS with a global prior".
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stages.adaptation.settings import EPSILON, Dynamic, Numbers
from stages.adaptation.update_rule import Statistics, UpdateRule
from stages.models.language_model import LanguageModel


class Weight(NamedTuple):
    """One tensor that learns: its values, those of training, and the factors of its update."""

    parameter: nn.Parameter
    trained: Tensor
    """θ_0."""
    step: Tensor
    """η / (M + ε)."""
    back: Tensor
    """min(1, γ R)."""


class DecayToPrior(UpdateRule):
    """RMS with a global prior."""

    needs_statistics = True

    def __init__(
        self, model: LanguageModel, settings: Dynamic, statistics: Statistics | None
    ) -> None:
        super().__init__(model, settings, statistics)
        assert statistics is not None, "it needs statistics"
        self._statistics = statistics
        self._parameters = dict(model.named_parameters())
        # θ_0, by name.
        self._trained = self.state()
        # The weights with the factors of `_numbers`; none before the first numbers are known.
        self._weights: list[Weight] = []
        self._numbers: Numbers | None = None

    @property
    def learning(self) -> Sequence[nn.Parameter]:
        return list(self._parameters.values())

    def begin(self, numbers: Numbers) -> None:
        self.load(self._trained, numbers)

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor | None]) -> None:
        for weight, gradient in zip(self._weights, gradients, strict=True):
            # The way back first: both parts of the update begin at the weights before it.
            weight.parameter.lerp_(weight.trained, weight.back)
            if gradient is not None:
                weight.parameter.addcmul_(gradient, weight.step, value=-1)

    def state(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self._parameters.items()}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor], numbers: Numbers) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(state[name])
        # The factors are as large as the weights: they are made again only for other numbers.
        if numbers != self._numbers:
            self._weights = self._scaled(numbers)
            self._numbers = numbers

    def _scaled(self, numbers: Numbers) -> list[Weight]:
        """The weights, with the factors of these numbers."""
        # mean(M), over tensors of their means.
        means = [float(rms.double().mean()) for rms in self._statistics.values()]
        mean = sum(means) / len(means)
        epsilon = mean * (self.settings.epsilon or EPSILON)
        decay_of_rms = numbers.decay / mean

        weights = []
        for name, parameter in self._parameters.items():
            rms = self._statistics[name].to(parameter)
            step = numbers.rate / (rms + epsilon)
            # γ R; above 1 the weight would be thrown beyond that of training.
            back = (rms * decay_of_rms).clamp(max=1)
            weights.append(Weight(parameter, self._trained[name], step, back))
        return weights

    @classmethod
    def state_numbers(cls, model: LanguageModel, settings: Dynamic) -> int:
        return sum(parameter.numel() for parameter in model.parameters())
