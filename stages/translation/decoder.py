"""Decoders: a source sentence is read once, then the target token by token; a language model as one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from stages.models.backbone import ReadsSource
from stages.models.devices import autocast
from stages.models.language_model import LanguageModel

S = TypeVar("S")


class Step(NamedTuple):
    """The next token of R rows, each a translation so far."""

    tokens: Tensor
    """The tokens before, int64 [R]; `<eos>` before the first, whatever the model reads there."""
    log_probs: Tensor
    """Log-probabilities of every token, natural log, [R, V]."""
    log_z: Tensor | None
    """Log of the sum of exp of the vocabulary's scores, [R]; None: nobody asked."""
    key: Tensor
    """Representation that memory is searched with, [R, d_k]."""
    state: Any
    """The decoder's state behind the tokens that were read."""


class Decoder(Protocol[S]):
    """A model that translates. A row's numbers depend neither on other rows nor on padding."""

    @property
    def start(self) -> int:
        """The first input of every target, which is none of its tokens."""

    @property
    def eos(self) -> int:
        """The token that ends a target."""

    @property
    def never(self) -> tuple[int, ...]:
        """Tokens that no target holds, such as `<unk>` and padding."""

    def begin(self, source: Tensor, mask: Tensor) -> S:
        """The state of N rows that have read their source sentences and no target.

        Args:
            source: tokens, int64 [N, S]; those that are masked may be any.
            mask: tokens that count, bool [N, S], a first part of each row.
        """

    def step(self, tokens: Tensor, state: S) -> Step:
        """Read one more token of each row, int64 [R]."""

    def select(self, state: S, rows: Tensor) -> S:
        """The state of some rows, int64 [R'], each as often as it is named."""


ReadMemory = Callable[[Step, Tensor], Tensor]
"""Log-probabilities [R, V] with memory on top, of a step and of the sentence that each row translates, int64 [R].

Sentences are numbers within the batch. All rows come in one call, so that a step is one search.
"""


def select_rows(state: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Rows of a state whose tensors begin with a dimension of rows."""
    return {name: tensor.index_select(0, rows) for name, tensor in state.items()}


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
        before = tokens.masked_fill(tokens == self.start, self.eos).flatten()
        log_z = self.model.log_prob(hidden, before)[1] if self.scores else None
        return Step(before, self.model.log_probs(hidden), log_z, key, encoding.state)

    def select(self, state: State, rows: Tensor) -> State:
        return select_rows(state, rows)
