"""A language model that reads a source, as a decoder."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stages.models.devices import autocast
from stages.models.language_model import LanguageModel, State
from stages.translation.decoder import Step, select_rows


class Progress(NamedTuple):
    """R translations so far: the source until the first step has read it, then the model's state."""

    source: Tensor | None
    mask: Tensor | None
    state: State


class ModelDecoder:
    """Steps of a model, one token a row; a target begins with `<eos>`, or what the model reads in its place."""

    def __init__(
        self,
        model: LanguageModel,
        eos: int,
        never: Sequence[int],
        key: str = "hidden",
        precision: str = "fp32",
        scores: bool = False,
    ) -> None:
        """Args:
        model: in evaluation mode, whose backbone reads sources.
        never: tokens that no target holds.
        key: representation that memory is searched with: `ffn-input` or `hidden`.
        precision: of the forward pass, `fp32` or `bf16`.
        scores: whether the log-normalizers of scores are computed, for memory that is read by `joint`.
        """
        self.start, self.eos, self.never = eos, eos, tuple(never)
        self._model, self._key, self._precision, self._scores = model, key, precision, scores

    def begin(self, source: Tensor, mask: Tensor) -> Progress:
        return Progress(source, mask, None)

    def step(self, tokens: Tensor, state: Progress) -> Step:
        with torch.no_grad(), autocast(tokens.device, self._precision):
            encoding = self._model.encode(tokens[:, None], state.state, None, state.source, state.mask)
        hidden, key = encoding.hidden[:, -1], encoding.key(self._key)[:, -1]
        log_z = self._model.log_prob(hidden, tokens)[1] if self._scores else None
        return Step(self._model.log_probs(hidden), log_z, key, Progress(None, None, encoding.state))

    def select(self, state: Progress, rows: Tensor) -> Progress:
        assert state.state is not None, "rows are chosen behind a step"
        return Progress(None, None, select_rows(state.state, rows))
