"""Decoders, which read a source sentence once, then its target token by token; a language model as
a decoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from stages.errors import UsageError
from stages.models.computing import autocast
from stages.models.language_model import LanguageModel

State = Mapping[str, Tensor]
"""State of R rows, by name; rows are the first dimension of all tensors."""


class Step(NamedTuple):
    """Distributions of the next token for R rows, each of which is a partial translation."""

    tokens: Tensor
    """Previous token of each row, int64 [R]; `<eos>` at the start, even if the model reads another
    token there.
    """
    log_probs: Tensor
    """Log-probabilities of every token, natural log, [R, V]."""
    log_z: Tensor | None
    """Logsumexp of the vocabulary's scores, [R]; None: not computed."""
    key: Tensor
    """Representations that are the queries of a memory, [R, d_k]."""
    state: State
    """The decoder's state after the tokens that were read."""


class Decoder(Protocol):
    """Interface of a translation model. Results of a row depend neither on other rows nor on
    padding.
    """

    @property
    def start(self) -> int:
        """The first input of every target, which is not one of its tokens."""

    @property
    def eos(self) -> int:
        """The token that ends a target."""

    @property
    def never(self) -> tuple[int, ...]:
        """Tokens that never appear in a target, such as `<unk>` and padding."""

    def begin(self, source: Tensor, mask: Tensor) -> State:
        """State of N rows after their source sentences, and before any target.

        Args:
            source: tokens, int64 [N, S]; masked ones may have any value.
            mask: tokens that count, bool [N, S], at the start of each row.
        """

    def step(self, tokens: Tensor, state: State) -> Step:
        """Read one more token of each row, int64 [R]."""


ReadMemory = Callable[[Step, Tensor], Tensor]
"""Function from a step, and the sentence that each row translates, to log-probabilities [R, V] with
memory read.

Sentences are indices within the batch, int64 [R]. All rows come in one call, so that a step needs
one search.
"""


def select_rows(state: State, rows: Tensor) -> State:
    """Select rows of a state by index, int64 [R']; an index may be repeated."""
    return {name: tensor.index_select(0, rows) for name, tensor in state.items()}


@dataclass(frozen=True)
class ModelDecoder:
    """Decoder of a language model in evaluation mode, whose backbone reads sources."""

    model: LanguageModel
    eos: int
    """Token that ends sources and targets; it is also the first input of a target, unless the model
    has a prompt.
    """
    key: str = "hidden"
    """Representation that is the query of a memory: `ffn-input` or `hidden`."""
    never: tuple[int, ...] = ()
    precision: str = "fp32"
    """Precision of the forward pass, `fp32` or `bf16`."""
    scores: bool = False
    """Whether to compute log-normalizers, which the reader `joint` needs."""

    @property
    def start(self) -> int:
        backbone = self.model.backbone
        return backbone.prompt[-1] if backbone.prompt else self.eos

    def begin(self, source: Tensor, mask: Tensor) -> State:
        with torch.no_grad(), autocast(source.device, self.precision):
            return self.model.begin(source, mask) or {}

    def step(self, tokens: Tensor, state: State) -> Step:
        return self._steps(tokens[:, None], state)

    def steps(self, target: Tensor, source: Tensor) -> Step:
        """All steps of one translation with tokens int64 [n]; row i predicts token i."""
        inputs = torch.cat((target.new_tensor([self.start]), target[:-1]))
        sources = source[None]
        mask = torch.ones_like(sources, dtype=torch.bool)
        return self._steps(inputs[None], self.begin(sources, mask))

    def _steps(self, tokens: Tensor, state: State) -> Step:
        """Read tokens [B, L]; the result has a row for each, B · L in all."""
        with torch.no_grad(), autocast(tokens.device, self.precision):
            encoding = self.model.encode(tokens, state)
        after = encoding.state or {}
        self._require_rows(state, after, len(tokens))

        hidden = encoding.hidden.flatten(0, 1)  # [B L, d]
        key = encoding.key(self.key).flatten(0, 1)
        # A memory counts `<eos>` before a target, as its datastore does.
        previous = tokens.masked_fill(tokens == self.start, self.eos).flatten()
        # The normalizer is the same for all tokens: that of `previous` is as good as any.
        log_z = self.model.log_prob(hidden, previous)[1] if self.scores else None
        return Step(previous, self.model.log_probs(hidden), log_z, key, after)

    def _require_rows(self, before: State, after: State, rows: int) -> None:
        """Refuse a state that lost a tensor or a row. Raises: UsageError naming the backbone."""
        lost_tensor = not before.keys() <= after.keys()
        lost_row = any(len(tensor) != rows for tensor in after.values())
        if not (lost_tensor or lost_row):
            return
        shapes = {name: tuple(tensor.shape) for name, tensor in after.items()}
        raise UsageError(
            f"The backbone {self.model.config.backbone!r} gives a state of {shapes} for {rows} rows: `read` "
            "gives every tensor that the state had, with rows as the first dimension."
        )
