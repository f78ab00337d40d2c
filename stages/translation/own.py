"""Models of this package as decoders."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stages.models.language_model import LanguageModel
from stages.translation.decoder import Step, select_rows

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class OwnDecoder:
    """A trained model that reads a source, in evaluation mode."""

    model: LanguageModel
    eos: int
    """Ends source and target, and is the first input of a target."""
    key: str = "hidden"
    """Representation that memory is searched with."""
    never: tuple[int, ...] = ()

    @property
    def prompt(self) -> tuple[int, ...]:
        return (self.eos,)

    def begin(self, source: Tensor, mask: Tensor) -> State:
        return self.model.begin(source, mask) or {}

    def step(self, tokens: Tensor, state: State) -> Step:
        encoding = self.model.encode(tokens[:, None], state)
        hidden = encoding.hidden[:, 0]
        with torch.no_grad():
            log_z = self.model.log_prob(hidden, torch.zeros_like(tokens))[1]
            return Step(self.model.log_probs(hidden), log_z, encoding.key(self.key)[:, 0], encoding.state)

    def select(self, state: State, rows: Tensor) -> State:
        return select_rows(state, rows)
