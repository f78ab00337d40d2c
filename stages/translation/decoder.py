"""The protocol of decoders: a source sentence read once, then the target token by token."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor

S = TypeVar("S")


class Step(NamedTuple):
    """The next token of R rows, each a translation so far."""

    tokens: Tensor
    """The tokens that were read last, int64 [R]."""
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
