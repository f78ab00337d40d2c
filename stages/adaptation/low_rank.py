"""Low-rank factors learn beside weights that stay, by Adam.

Source: Hu et al. 2022 (LoRA, arXiv:2106.09685); Kingma and Ba 2015 (Adam, arXiv:1412.6980).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stages.adaptation.settings import RANK, Dynamic, Numbers
from stages.adaptation.update_rule import Statistics, UpdateRule
from stages.models.language_model import LanguageModel
from stages.models.low_rank import FACTORS, factor_numbers, insert_factors

SEED = 0
"""Seed of the factors A at the beginning, which are the same in every run."""
MOMENTS = 2
"""Tensors that Adam keeps of each factor."""


class LowRankAdam(UpdateRule):
    """Factors on the matrices of all blocks."""

    def __init__(
        self, model: LanguageModel, settings: Dynamic, statistics: Statistics | None
    ) -> None:
        super().__init__(model, settings, statistics)
        device = next(model.parameters()).device
        # The factors are drawn on the CPU, without a trace in the random state of others.
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            insert_factors(model, settings.rank or RANK, "--memory dynamic:what=lora")
        model.to(device).eval()

        self._factors: dict[str, nn.Parameter] = {}
        for name, parameter in model.named_parameters():
            if FACTORS in name:
                self._factors[name] = parameter
        self._initial = {name: factor.detach().clone() for name, factor in self._factors.items()}
        self._adam: torch.optim.Adam

    @property
    def learning(self) -> Sequence[nn.Parameter]:
        return list(self._factors.values())

    @torch.no_grad()
    def begin(self, numbers: Numbers) -> None:
        for name, factor in self._factors.items():
            factor.copy_(self._initial[name])
        self._adam = torch.optim.Adam(self.learning, numbers.rate)

    def update(self, gradients: Sequence[Tensor | None]) -> None:
        for factor, gradient in zip(self.learning, gradients, strict=True):
            factor.grad = gradient
        self._adam.step()
        self._adam.zero_grad()

    def state(self) -> dict[str, Tensor]:
        state = {name: factor.detach().clone() for name, factor in self._factors.items()}
        # A moment of a factor is named by both.
        for name, factor in self._factors.items():
            for moment, tensor in self._adam.state[factor].items():
                state[f"{moment} {name}"] = tensor.clone()
        return state

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor], numbers: Numbers) -> None:
        self.begin(numbers)
        for name, factor in self._factors.items():
            factor.copy_(state[name])
            suffix = f" {name}"
            for key, tensor in state.items():
                if key.endswith(suffix):
                    moment = key.removesuffix(suffix)
                    self._adam.state[factor][moment] = tensor.clone()

    @classmethod
    def state_numbers(cls, model: LanguageModel, settings: Dynamic) -> int:
        return (1 + MOMENTS) * factor_numbers(model, settings.rank or RANK)
