"""A language model that reads a source, as a decoder."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stages.models.backbone import ReadsSource
from stages.models.devices import autocast
from stages.models.language_model import LanguageModel
from stages.translation.decoder import Step, select_rows

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class ModelDecoder:
    """A model in evaluation mode, whose backbone reads sources."""

    model: LanguageModel
    eos: int
    """Ends source and target, and is the first input of a target unless the model wants another."""
    key: str = "hidden"
    """Representation that memory is searched with: `ffn-input` or `hidden`."""
    never: tuple[int, ...] = ()
    precision: str = "fp32"
    """Precision of the forward pass, `fp32` or `bf16`."""
    scores: bool = False
    """Whether log-normalizers are computed, for memory that is read by `joint`."""

    @property
    def start(self) -> int:
        backbone = self.model.backbone
        return backbone.prompt[-1] if isinstance(backbone, ReadsSource) and backbone.prompt else self.eos

    def begin(self, source: Tensor, mask: Tensor) -> State:
        with torch.no_grad(), autocast(source.device, self.precision):
            return self.model.begin(source, mask) or {}

    def step(self, tokens: Tensor, state: State) -> Step:
        return self._steps(tokens[:, None], state)

    def steps(self, target: Tensor, source: Tensor) -> Step:
        """All steps of one translation, its tokens int64 [n]; row i is the one that token i follows."""
        inputs = torch.cat((target.new_tensor([self.start]), target[:-1]))
        return self._steps(inputs[None], self.begin(source[None], torch.ones_like(source[None], dtype=torch.bool)))

    def _steps(self, tokens: Tensor, state: State) -> Step:
        """Read tokens [B, L]; the steps of all, [B · L]."""
        with torch.no_grad(), autocast(tokens.device, self.precision):
            encoding = self.model.encode(tokens, state)
        hidden, key = encoding.hidden.flatten(0, 1), encoding.key(self.key).flatten(0, 1)
        log_z = self.model.log_prob(hidden, tokens.flatten())[1] if self.scores else None
        return Step(tokens.flatten(), self.model.log_probs(hidden), log_z, key, encoding.state)

    def select(self, state: State, rows: Tensor) -> State:
        return select_rows(state, rows)
