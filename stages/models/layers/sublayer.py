"""Interfaces of a block's layers: lookup, attention over windows, attention over streams,
feed-forward.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import BlockSizes, DenseSettings, Nothing

Memory = TypeVar("Memory", bound=NamedTuple)
"""Memory of a layer, in addition to the cached inputs of its block: a NamedTuple of tensors [B, …].
"""


class Sublayer(nn.Module, ABC):
    """Base class of layers; `Layer(config, settings)` takes the settings of the block, and its own.

    A model is loaded without running a layer's initialization. So all tensors must be parameters or
    persistent buffers. With `--precision bf16` products are in bfloat16; normalized inputs, and the
    memory from `begin`, are in float32.
    """

    @abstractmethod
    def initialize(self, blocks: int) -> None:
        """Initialize the weights; `blocks` is the number of blocks in the stack."""


class SeparateParameters(NamedTuple):
    """Parameters in a separate group, whose gradient is clipped separately."""

    parameters: list[nn.Parameter]
    lr: float | None = None
    """Constant learning rate of the group, without weight decay; None: the schedule of the other
    parameters.
    """


class HasSeparateParameters(ABC):
    """A module with parameters in a separate group."""

    @abstractmethod
    def separate_parameters(self) -> SeparateParameters:
        """The group of these parameters, and its learning rate."""


class SharesWeights(ABC):
    """A layer that shares some weights with all layers of its class in a model; the first of these
    owns them.
    """

    @abstractmethod
    def share(self, first: Any) -> None:
        """Use the weights of the first layer instead of its own."""


def share_weights(network: nn.Module) -> None:
    """Share the weights of `SharesWeights` layers; call before initialization, so that no weights
    are drawn in vain.
    """
    owners = dict[type, SharesWeights]()
    for layer in network.modules():
        if not isinstance(layer, SharesWeights):
            continue
        owner = owners.setdefault(type(layer), layer)
        if owner is not layer:
            layer.share(owner)


class FeedForward(Sublayer):
    """Interface of a feed-forward layer, which processes each position independently."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Normalized inputs [B, L, d] -> term to add to the residual stream, [B, L, d]."""


class WindowAttention(Sublayer):
    """Interface of attention over a window, without any earlier context."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Normalized inputs [B, L, d] -> term to add to the residual stream, [B, L, d]."""


class ContinuedAttention(WindowAttention, Generic[Memory]):
    """Interface of attention that can also read a window in pieces; results do not depend on the
    cuts.
    """

    @abstractmethod
    def begin(self, x: Tensor) -> Memory:
        """Create the memory at the start of a window; inputs [B, n, d] give its B, dtype and
        device.
        """

    @abstractmethod
    def continue_window(self, x: Tensor, memory: Memory, place: int) -> tuple[Tensor, Memory]:
        """Output of `forward` for the n positions after the first `place`, and the memory after
        them.
        """


class Lookup(Sublayer, Generic[Memory]):
    """Interface of a layer that looks up the latest tokens, and adds the result to the residual
    stream.

    It runs before a block's attention. Its memory holds what it needs of earlier tokens, so results
    do not depend on how a stream is cut.
    """

    @abstractmethod
    def begin(self, x: Tensor) -> Memory:
        """Create the memory of a new stream; the residual stream [B, n, d] gives its B, dtype and
        device.
        """

    @abstractmethod
    def forward(
        self, x: Tensor, tokens: Tensor | None, document_offset: Tensor | None, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """Residual stream [B, n, d] after the lookup, and the memory after these positions.

        Args:
            x: residual stream, [B, n, d].
            tokens, document_offset: int64 [B, n], as in `SegmentContext`.
            memory: memory of the positions before.
        """


class NoLookup(Lookup[Nothing]):
    """Leaves the residual stream as it is."""

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
    """A segment's part of a passage: its queries [first, stop), which attend to positions from
    `begin`.
    """

    begin: int
    first: int
    stop: int


class SegmentContext(NamedTuple):
    """n positions of a stream that are read together, after m cached ones; indices count from the
    first cached.
    """

    cached: int
    """m; cached positions have no queries."""
    place: int
    """Number of cached positions that belong to the current segment."""
    spans: list[Span]
    """Parts of the n positions by segment, in order; only one in a model whose layers have memory.
    """
    distances: Tensor
    """Sinusoids of the distances D, D - 1, … 0, [D + 1, d]; D is at least the number of positions
    of each span.
    """
    ends_segment: bool
    """Whether the last position ends a segment."""
    document_offset: Tensor | None = None
    """Offset of each of the n positions within its document, int64 [B, n]; None: the stream is one
    document, as it is for a layer whose settings do not ask for documents (`reads_documents`).
    """
    tokens: Tensor | None = None
    """Tokens at the n positions, int64 [B, n]; earlier ones are in the layer's memory. None: not
    known.
    """


class StreamInputs(NamedTuple):
    """Inputs of a block at m + n positions, [B, m + n, d] each; the first m are cached, and have no
    gradient.
    """

    raw: Tensor
    """The residual stream."""
    normalized: Tensor
    """norm(raw), which attention reads."""
    norm: nn.LayerNorm
    """The block's norm; a layer that keeps raw inputs applies it when it reads them."""


class Attended(NamedTuple, Generic[Memory]):
    """Output of attention."""

    hidden: Tensor
    """Term to add to the residual stream, [B, n, d]."""
    memory: Memory
    """Memory after the passage; the backbone detaches it unless the layer `keeps_graph`."""
    auxiliary_loss: Tensor | None = None
    """Scalar that training adds to the loss; None: nothing."""


class StreamAttention(Sublayer, Generic[Memory]):
    """Interface of attention that reads a stream passage by passage; results do not depend on the
    cuts.

    Its settings describe its memory, a NamedTuple (`memory_spec`). A layer may write memory only
    when a passage ends a segment; the segment's inputs then begin at `passage.cached -
    passage.place`.
    """

    keeps_graph: ClassVar[bool] = False
    """Whether gradients flow through the memory into earlier segments of the same update
    (`--accumulate`).

    Weights that only write memory learn so, or by an auxiliary loss.
    """

    @abstractmethod
    def begin(self, x: Tensor) -> Memory:
        """Create the memory of a new stream, which may be learned; inputs [B, n, d] give its B,
        dtype and device.
        """

    @abstractmethod
    def forward(
        self, inputs: StreamInputs, passage: SegmentContext, memory: Memory
    ) -> Attended[Memory]:
        """Read a passage; memory is that before it."""


def initialize(layer: nn.Module, last: nn.Linear, blocks: int) -> None:
    """Xavier initialization with biases of 0; `last`, which feeds the residual stream, is scaled
    down by depth.
    """
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() == 2:
            nn.init.xavier_uniform_(parameter)
    with torch.no_grad():
        # Each block adds two terms to the residual stream: so its variance at the top does not
        # depend on depth.
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
