"""The interface of a backbone: embeddings and the state before them -> representations and the state after."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stages.errors import UsageError

State = Mapping[str, Tensor] | None
"""State that a network carries from call to call, tensors by name; None: nothing (yet).

Tensors of a layer have its name before theirs: `block3.keys`. Files keep the names.
"""


def each(state: State, change: Callable[[Tensor], Tensor]) -> State:
    """The same state with every tensor changed, as by `Tensor.detach`."""
    return None if state is None else {name: change(tensor) for name, tensor in state.items()}


def named_below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, by what stands behind it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class Inputs(NamedTuple):
    """B windows of L inputs as a network reads them, and what stands before or beside them."""

    embedded: Tensor
    """Embeddings of the inputs, [B, L, d]."""
    state: State = None
    """The state after the windows before; None: streams begin."""
    document_offset: Tensor | None = None
    """Positions of its own document before each input, int64 [B, L]; None: a stream is one document."""
    source: Tensor | None = None
    """Tokens of a second sequence that each window is read with (a sentence to translate), int64 [B, S]."""
    source_mask: Tensor | None = None
    """Tokens of the source that count, bool [B, S]; None: all."""
    source_embedded: Tensor | None = None
    """Embeddings of these tokens by the model's own vocabulary, [B, S, d]."""
    tokens: Tensor | None = None
    """The inputs themselves, int64 [B, L]; None: embeddings are all that there is."""
    mask: Tensor | None = None
    """Inputs that count, bool [B, L], of examples that are padded at the end; a causal network needs none."""


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

    def after(self, rows: int) -> "Encoding":
        """The same less the first rows of every window."""
        ffn_input = None if self.ffn_input is None else self.ffn_input[:, rows:]
        return Encoding(self.hidden[:, rows:], ffn_input, self.state, self.auxiliary_loss)

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
    # A window that begins with the prefix itself was padded behind: its last row is of the padding.
    return torch.where(begun[:, None, None], rows[:, :-1], rows[:, 1:])


class Backbone(nn.Module, ABC):
    """The network of a `BackboneConfig`, whose `state_spec` and `keys` say what it carries and encodes.

    Cutting a stream into calls anywhere changes no number, in evaluation mode.
    """

    prefix: int | None = None
    """A token that stands before every window, and predicts nothing that is scored; None: there is none."""

    keeps_graph: bool = False
    """Whether training lets a loss reach through the state into earlier batches of the same update."""

    @abstractmethod
    def read(self, inputs: Inputs) -> Encoding:
        """Representations of the inputs, and the state after them."""

    def forward(self, inputs: Inputs) -> Encoding:
        """`read`, as torch's hooks and compiler see it."""
        return self.read(inputs)


class ReadsSource(ABC):
    """A backbone that reads a source once, and then its target piece by piece.

    `read` takes what `begin` made as a state, and gives that behind the inputs. Its tensors begin with a dimension of
    rows, so a row can be dropped or repeated.
    """

    prompt: tuple[int, ...] = ()
    """Inputs that stand in place of the first one of every target, `<eos>`; empty: that stays."""
    source_prefix: tuple[int, ...] = ()
    """Tokens that stand before every source."""

    @abstractmethod
    def begin(self, source: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """The state of rows that have read their sources, and no target yet.

        Args:
            source: embeddings, [B, S, d].
            mask: positions that count, bool [B, S]; None: all.
        """

    def begun(self, inputs: Inputs) -> Mapping[str, Tensor]:
        """The state that inputs bring, or that of their source. Raises: UsageError where they bring neither."""
        if inputs.state is not None:
            return inputs.state
        if inputs.source_embedded is None:
            raise UsageError("A translation model reads a target with its source: give pairs of sentences.")
        return self.begin(inputs.source_embedded, inputs.source_mask)


class Compilable(ABC):
    """A backbone that is worth compiling."""

    @abstractmethod
    def compiled_parts(self) -> Sequence[nn.Module]:
        """Modules whose forward pass is compiled, for batches of one shape; the backbone may be one."""


class Replays(ABC):
    """A backbone whose updates over several segments replay its memory: see `stages.training.replay`."""

    @abstractmethod
    def advance(self, inputs: Inputs) -> State:
        """The state after inputs, by the shortest way there; random numbers are drawn in the order of `read`."""
