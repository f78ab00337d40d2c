"""Interfaces of a block's layers: lookup, attention over windows, attention over streams, feed-forward."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import BlockSizes, DenseSettings, Nothing

Memory = TypeVar("Memory", bound=NamedTuple)
"""Memory of an attention layer besides the cached inputs of its block: a NamedTuple of tensors [B, …]."""


class Sublayer(nn.Module, ABC):
    """Made of the block's settings and its own: `Layer(config, settings)`.

    A model is opened without the numbers that a layer makes, so that tensors are parameters, or persistent buffers.
    With `--precision bf16` products are in bfloat16, while normalized inputs and what `begin` makes are in float32.
    """

    @abstractmethod
    def initialize(self, blocks: int) -> None:
        """Let the weights begin, in a stack of this many blocks."""


class Apart(NamedTuple):
    """Parameters that learn beside the others: their gradient is clipped by itself."""

    parameters: list[nn.Parameter]
    lr: float | None = None
    """Learning rate of their own, the same at every step, without weight decay; None: they learn as the others do."""


class LearnsApart(ABC):
    """A part of a network some of whose parameters learn apart."""

    @abstractmethod
    def apart(self) -> Apart:
        """These parameters."""


class SharesWeights(ABC):
    """A layer that has some weights in common with all of its kind in a model: the first of them has them."""

    @abstractmethod
    def share(self, first: Any) -> None:
        """Take these of the first layer in place of its own."""


def share_weights(network: nn.Module) -> None:
    """Let layers that share weights do so; before the weights begin, so that none are drawn in vain."""
    first = dict[type, SharesWeights]()
    for layer in network.modules():
        if isinstance(layer, SharesWeights) and first.setdefault(type(layer), layer) is not layer:
            layer.share(first[type(layer)])


class FeedForward(Sublayer):
    """Works on each position by itself."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Normalized inputs [B, L, d] -> what is added to the residual stream, [B, L, d]."""


class WindowAttention(Sublayer):
    """Reads a window, which nothing precedes."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Normalized inputs [B, L, d] -> what is added to the residual stream, [B, L, d]."""


class RecurrentAttention(WindowAttention, Generic[Memory]):
    """Reads a window in pieces, too: however it is cut, the numbers are the same.

    Its memory does not grow with the positions before, so every position takes the same time.
    """

    @abstractmethod
    def begin(self, x: Tensor) -> Memory:
        """Create the memory where a window begins; inputs [B, n, d] give its rows, type and device."""

    @abstractmethod
    def going_on(self, x: Tensor, memory: Memory, place: int) -> tuple[Tensor, Memory]:
        """As `forward`, for the n positions behind the first `place`; and the memory after them."""


class Lookup(Sublayer, Generic[Memory]):
    """Looks the latest tokens up, and adds what it finds to the residual stream, before a block's attention.

    However a stream is cut, the numbers are the same: what it needs of the tokens before is its memory.
    """

    @abstractmethod
    def begin(self, x: Tensor) -> Memory:
        """Create the memory of a new stream; the residual stream [B, n, d] gives its rows, type and device."""

    @abstractmethod
    def forward(
        self, x: Tensor, tokens: Tensor | None, document_offset: Tensor | None, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """The next residual stream [B, n, d], and the memory after it.

        Args:
            x: the residual stream, [B, n, d].
            tokens, document_offset: int64 [B, n], as those of `Passage`.
        """


class NoLookup(Lookup[Nothing]):
    """Looks nothing up."""

    def __init__(self, config: Any, settings: Any) -> None:
        super().__init__()

    def initialize(self, blocks: int) -> None:
        pass

    def begin(self, x: Tensor) -> Nothing:
        return Nothing()

    def forward(
        self, x: Tensor, tokens: Tensor | None, document_offset: Tensor | None, memory: Nothing
    ) -> tuple[Tensor, Nothing]:
        return x, memory


class Span(NamedTuple):
    """A segment's part of what is read: its queries [first, stop), which attend to positions from `begin` on."""

    begin: int
    first: int
    stop: int


class Passage(NamedTuple):
    """n positions of a stream that are read at once, behind m cached ones; all are counted from the first cached."""

    cached: int
    """m; the cached positions ask nothing."""
    place: int
    """How many positions of the segment under way are cached."""
    spans: list[Span]
    """Parts of the n positions by segment, in order; one alone in a model with a layer that remembers."""
    distances: Tensor
    """Sinusoids of the distances D, D - 1, … 0, [D + 1, d]; D at least the positions that a span sees."""
    ends_segment: bool
    """Whether a segment ends with the last position."""
    document_offset: Tensor | None = None
    """Positions of its own document before each of the n, int64 [B, n]; None: all before it are."""
    tokens: Tensor | None = None
    """Tokens at the n positions, int64 [B, n]; a layer remembers those before. None: there are embeddings alone."""


class StreamInputs(NamedTuple):
    """Inputs of a block at m + n positions, of which the first m are cached and constant; [B, m + n, d] each."""

    raw: Tensor
    """The residual stream."""
    normalized: Tensor
    """norm(raw): what attention reads."""
    norm: nn.LayerNorm
    """The block's; raw inputs that a layer keeps go through it when they are read."""


class Attended(NamedTuple, Generic[Memory]):
    """Output of attention."""

    hidden: Tensor
    """Term of the residual stream, [B, n, d]."""
    memory: Memory
    """Memory after the passage; its gradient is passed on only where the layer `keeps_graph`."""
    auxiliary_loss: Tensor | None = None
    """Term that training adds to the loss, a scalar; None: nothing."""


class StreamAttention(Sublayer, Generic[Memory]):
    """Reads a stream passage by passage: however it is cut, the numbers are the same.

    Its memory is the NamedTuple that its settings describe (`memory_spec`). To write it only where a passage
    ends a segment is enough; the segment's inputs then begin at `passage.cached - passage.place`.
    """

    keeps_graph: ClassVar[bool] = False
    """Whether a loss reaches through the memory into the segments before, of the same update (`--accumulate`)."""

    @abstractmethod
    def begin(self, x: Tensor) -> Memory:
        """Create the memory of a new stream, which may be learned; inputs [B, n, d] give its rows, type and device."""

    @abstractmethod
    def forward(self, inputs: StreamInputs, passage: Passage, memory: Memory) -> Attended[Memory]:
        """Read a passage, of which memory holds nothing yet."""


def initialize(layer: nn.Module, last: nn.Linear, blocks: int) -> None:
    """Xavier; `last`, which is added to the residual stream, is smaller the more blocks there are. Biases are 0."""
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() == 2:
            nn.init.xavier_uniform_(parameter)
    with torch.no_grad():
        # Two layers a block add to the residual stream: at the top it is then as large as in a single block.
        last.weight.div_((2 * blocks) ** 0.5)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class Dense(FeedForward):
    """Two linear layers with an activation between them."""

    def __init__(self, config: BlockSizes, settings: DenseSettings) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.ffn_width)
        self.down = nn.Linear(config.ffn_width, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)

    def initialize(self, blocks: int) -> None:
        initialize(self, self.down, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        return self.down(self.dropout(self.activation(self.up(x))))
