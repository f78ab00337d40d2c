"""Interface of a backbone: embeddings and the state before them -> representations and the state
after them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor, nn

from stages.errors import UsageError

State = Mapping[str, Tensor] | None
"""State that a network carries from call to call, as tensors by name; None: no state (yet).

Names of a layer's tensors begin with its name: `block3.keys`. They are stored in files.
"""


def each(state: State, change: Callable[[Tensor], Tensor]) -> State:
    """Apply a function, such as `Tensor.detach`, to every tensor of a state."""
    return None if state is None else {name: change(tensor) for name, tensor in state.items()}


def named_below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


class Inputs(NamedTuple):
    """B windows of L inputs, with their state, source and masks."""

    embedded: Tensor
    """Embeddings of the inputs, [B, L, d]; their norm begins near 0.3."""
    state: State = None
    """The state after the previous windows; None: streams begin."""
    document_offset: Tensor | None = None
    """Offset of each input within its document, int64 [B, L]; None: a stream is one document."""
    source: Tensor | None = None
    """Tokens of a second sequence for each window, such as a sentence to translate, int64 [B, S].
    """
    source_mask: Tensor | None = None
    """Tokens of the source that count, bool [B, S]; None: all."""
    source_embedded: Tensor | None = None
    """Embeddings of these tokens by the model's own vocabulary, [B, S, d]."""
    tokens: Tensor | None = None
    """Tokens of the inputs, int64 [B, L]; None: only embeddings are known."""
    mask: Tensor | None = None
    """Inputs that count, bool [B, L], for examples with padding at the end; a causal network needs
    no mask.
    """

    def between(self, start: int, stop: int) -> "Inputs":
        """The inputs from `start` to `stop` of each window of a stream; state and source stay."""
        parts = {}
        for name in ("embedded", "document_offset", "tokens"):
            whole = getattr(self, name)
            if whole is not None:
                parts[name] = whole[:, start:stop]
        return self._replace(**parts)


@dataclass
class Encoding:
    """Representations of B windows of L inputs; row i predicts the token after input i. L = 1 if
    windows are pooled.
    """

    hidden: Tensor
    """f(c_t), [B, L, d]: the input of the softmax."""
    ffn_input: Tensor | None
    """g(c_t), [B, L, d]: input of the last feed-forward layer, after its layer norm; None: there is
    no such layer.
    """
    state: State = None
    """The state for the next window of the same stream."""
    auxiliary_loss: Tensor | None = None
    """Scalar that training adds to the loss, such as a balance of experts; None: nothing."""

    def select(self, rows: Callable[[Tensor], Tensor]) -> "Encoding":
        """Apply a choice of rows, [B, L, d] -> [B, n, d], to both representations."""
        ffn_input = None if self.ffn_input is None else rows(self.ffn_input)
        return replace(self, hidden=rows(self.hidden), ffn_input=ffn_input)

    def positions(self, start: int | None = None, stop: int | None = None) -> "Encoding":
        """Positions [start, stop) of all windows, without the state."""
        part = self.select(lambda rows: rows[:, start:stop])
        return replace(part, state=None)

    def key(self, name: str) -> Tensor:
        """The representation that is key and query of a memory: `hidden` or `ffn-input`.

        Raises: UsageError if the backbone does not have it.
        """
        key = {"hidden": self.hidden, "ffn-input": self.ffn_input}[name]
        if key is None:
            raise UsageError(f"The model has no key {name!r}; use --key hidden.")
        return key


class Backbone(nn.Module, ABC):
    """Network of a `BackboneConfig`, which describes its state (`state_spec`) and its keys
    (`reads.keys`).

    In evaluation mode, results do not depend on how a stream is cut into calls.
    """

    prefix: int | None = None
    """Token that must precede every window, and whose own prediction is not scored; None: no token.
    """

    prompt: tuple[int, ...] = ()
    """Inputs that replace `<eos>`, the first input of every target; empty: it stays."""

    source_prefix: tuple[int, ...] = ()
    """Tokens that precede every source."""

    keeps_graph: bool = False
    """Whether gradients flow through the state into earlier batches of the same update."""

    replays: bool = False
    """Whether updates over several segments replay its memory: see `stages.training.replay`."""

    @abstractmethod
    def read(self, inputs: Inputs) -> Encoding:
        """Compute representations of the inputs, and the state after them."""

    def advance(self, inputs: Inputs) -> State:
        """State after inputs; random numbers are drawn in the order of `read`.

        A backbone that `replays` computes only what the state needs.
        """
        return self.read(inputs).state

    def compiled_parts(self) -> Sequence[nn.Module]:
        """Modules that are worth compiling, for batches of one shape; the backbone itself may be
        one. By default there are none.
        """
        return ()

    def forward(self, inputs: Inputs) -> Encoding:
        """Call `read`, so that torch's hooks and compiler apply."""
        return self.read(inputs)


class ReadsSource(ABC):
    """Interface of a backbone that reads a source once, and then its target piece by piece.

    `begin` makes a state; `read` takes it, and returns the state after its inputs. Rows are the
    first dimension of all tensors of a state, so a row can be dropped or repeated.
    """

    @abstractmethod
    def begin(self, source: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """State of rows after their sources, and before any target.

        Args:
            source: embeddings, [B, S, d].
            mask: positions that count, bool [B, S]; None: all.
        """

    def begun(self, inputs: Inputs) -> Mapping[str, Tensor]:
        """The state of the inputs, or else that after their source. Raises: UsageError if they have
        neither.
        """
        if inputs.state is not None:
            return inputs.state
        if inputs.source_embedded is None:
            raise UsageError(
                "A translation model reads a target with its source: give pairs of sentences."
            )
        return self.begin(inputs.source_embedded, inputs.source_mask)


class JoinsRows(ABC):
    """Interface of a backbone that reads several windows in pieces together.

    `read` takes the state of the windows, and returns the state after its inputs; `{}` begins a
    window. Windows that have read unequal numbers of inputs may share a state.
    """

    @abstractmethod
    def can_join(self, state: State) -> bool:
        """Whether rows of a window that has been begun may join others."""

    @abstractmethod
    def join(self, states: Sequence[State]) -> State:
        """One state with the rows of several, in their order."""

    @abstractmethod
    def rows(self, state: State, rows: Sequence[int]) -> State:
        """The state of some rows."""

    @abstractmethod
    def without_last(self, state: State, number: int) -> State:
        """The state before the last `number` inputs; None if it cannot be had from this one."""


class EmbedsTexts(ABC):
    """Interface of a backbone that makes one vector of a whole text, as its own library does."""

    @abstractmethod
    def embed(self, inputs: Inputs) -> Tensor:
        """Vectors of documents with a mask, [B, k]."""
