"""The interface of a backbone: embeddings and the state before them -> representations and the state after."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stages.errors import UsageError

State = tuple[Tensor, ...] | None
"""State carried from window to window. LSTM: h and c, each [layers, B, d]; Transformer-XL: cached hidden states
[layers, B, m, d] and the place in the current segment, int64 [1]. None: nothing (yet)."""


@dataclass
class Encoding:
    """Representations of B windows of L inputs: row i of a window predicts its next token; L = 1 where they pool."""

    hidden: Tensor
    """f(c_t), [B, L, d]: what the softmax reads."""
    ffn_input: Tensor | None
    """g(c_t), [B, L, d]: input of the last feed-forward block, after its layer norm; None: there is no such block."""
    state: State = None
    """The state for the next window of the same stream."""
    auxiliary_loss: Tensor | None = None
    """Term that training adds to the loss, a scalar (a balance of experts, say); None: nothing."""

    def without_prefix(self, begun: Tensor) -> "Encoding":
        """The same less the row of every window that a prefix made.

        Args:
            begun: windows that need none, bool [B]: there it stands behind the others, and the last row is left out.
        """
        ffn_input = None if self.ffn_input is None else _without_one(self.ffn_input, begun)
        return Encoding(_without_one(self.hidden, begun), ffn_input, self.state, self.auxiliary_loss)

    def key(self, name: str) -> Tensor:
        """The representation that memory is searched with: `hidden` or `ffn-input`.

        Raises: UsageError if the backbone does not have it.
        """
        key = {"hidden": self.hidden, "ffn-input": self.ffn_input}[name]
        if key is None:
            raise UsageError(f"The model has no key {name!r}; use --key hidden.")
        return key


def _without_one(rows: Tensor, begun: Tensor) -> Tensor:
    """Rows of windows, [B, L + 1, d] -> [B, L, d]: all but the last where windows have begun, else but the first."""
    return torch.where(begun[:, None, None], rows[:, :-1], rows[:, 1:])


class Backbone(nn.Module, ABC):
    """The network of a `BackboneConfig`, whose `state_spec` and `keys` say what it carries and encodes.

    Cutting a stream into calls anywhere changes no number, in evaluation mode.
    """

    prefix: int | None = None
    """A token that stands before every window, and predicts nothing that is scored; None: there is none."""

    @abstractmethod
    def forward(self, embedded: Tensor, state: State = None) -> Encoding:
        """Read embeddings [B, L, d], going on from `state`; None: a stream begins."""


class Compilable(ABC):
    """A backbone that is worth compiling."""

    @abstractmethod
    def compiled_parts(self) -> Sequence[nn.Module]:
        """Modules whose forward pass is compiled, for batches of one shape; the backbone may be one."""
