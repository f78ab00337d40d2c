"""Recurrence over a stream in segments: blocks attend to cached inputs before the segment, and may
have more memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from stages.models.backbone import Backbone, Encoding, Inputs
from stages.models.backbones.stream_configs import DistancesConfig, SegmentedConfig
from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import in_blocks, memory_of, of_blocks, present
from stages.models.layers.sinusoids import sinusoids
from stages.models.layers.sublayer import Attended, SegmentContext, Span


class StreamBlock(nn.Module, ABC):
    """Interface of a block in a segmented network."""

    keeps_graph: bool
    """Whether gradients flow through its memory into earlier segments of the same update."""

    @abstractmethod
    def begin(self, x: Tensor) -> NamedTuple:
        """Create the memory of a new stream; inputs [B, n, d] give its B, dtype and device."""

    def apply_lookup(self, x: Tensor, passage: SegmentContext, memory: Any) -> tuple[Tensor, Any]:
        """Apply the block's lookup of tokens, if it has one: its input [B, n, d], as it is cached,
        and the memory.
        """
        return x, memory

    @abstractmethod
    def forward(
        self, past: Tensor, x: Tensor, passage: SegmentContext, memory: Any
    ) -> tuple[Tensor, Tensor | None, Attended[Any]]:
        """Cached inputs [B, m, d] and inputs [B, n, d] -> output, feed-forward input, and result of
        attention.
        """


class SegmentedState(NamedTuple):
    """State passed from passage to passage."""

    cached: Tensor
    """Inputs of each layer at the latest m positions, [layers, B, m, d]."""
    place: int
    """Number of these positions, at the end, that belong to the current segment."""
    memories: list[NamedTuple]
    """Memory of each block."""


class Segmented(Backbone):
    """Embeddings -> (f, g); carries the inputs of each layer, their place in the segment, and the
    blocks' memories.

    A position attends to the M positions before its segment, without gradient, and to its own
    segment up to itself. Results do not depend on how a stream is cut into calls.
    """

    reads_segments_apart: ClassVar[bool] = False
    """Whether blocks need passages within one segment even if they have no memory."""

    def __init__(self, config: SegmentedConfig) -> None:
        super().__init__()
        assert config.segment_length is not None, "the stage fills it in"
        self.length = config.segment_length
        self.memory = config.lengths.cached
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self.build_blocks(config))
        self.memories = [config.memory_spec(n + 1, self.length) for n in range(config.layers)]
        self.keeps_graph = any(block.keeps_graph for block in self.blocks)
        self.leading: nn.Parameter | None = None
        """Rows put before the positions of every passage, [m, d]; they are not cached, and not part
        of the output.
        """

    @abstractmethod
    def build_blocks(self, config: Any) -> list[StreamBlock]:
        """Create the blocks, with initialized weights."""

    @abstractmethod
    def block_input(self, embedded: Tensor) -> Tensor:
        """Compute the first block's input [B, n, d] from embeddings [B, n, d]."""

    @abstractmethod
    def distances(self, longest: int, like: Tensor) -> Tensor:
        """`SegmentContext.distances` for the distances `longest` … 0; inputs [B, n, d] give dtype and
        device.
        """

    @abstractmethod
    def block_output(self, x: Tensor) -> Tensor:
        """Compute f [B, n, d] from the last block's output [B, n, d]."""

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, n, d] and state -> hidden [B, n, d] (f), ffn_input [B, n, d] (g), the
        state after them.

        The state is `SegmentedState`: `cached`, `place`, int64 [1], and the memory of each block under its
        number.
        """
        state = inputs.state
        carried = self._begin(inputs.embedded) if state is None else self._carried(state)

        hidden: list[Tensor] = []
        ffn_inputs: list[Tensor] = []
        losses: list[Tensor] = []

        length = inputs.embedded.shape[1]
        borders = self._borders(length, carried.place)
        for start, stop in pairwise((0, *borders, length)):
            f, g, carried, auxiliary_losses = self._read(inputs.between(start, stop), carried)
            hidden.append(f)
            if g is not None:
                ffn_inputs.append(g)
            losses += auxiliary_losses

        ffn_input = torch.cat(ffn_inputs, 1) if ffn_inputs else None
        auxiliary_loss = torch.stack(losses).sum() if losses else None
        # The place stays on the CPU, so that reading it does not wait for a GPU.
        place = torch.tensor([carried.place])
        after = {"cached": carried.cached, "place": place} | in_blocks(carried.memories)
        return Encoding(torch.cat(hidden, 1), ffn_input, after, auxiliary_loss)

    def _begin(self, embedded: Tensor) -> SegmentedState:
        """State before the first position of streams with embeddings [B, n, d]."""
        cached = embedded.new_empty((len(self.blocks), len(embedded), 0, embedded.shape[2]))
        memories = [cast(StreamBlock, block).begin(embedded) for block in self.blocks]
        return SegmentedState(cached, 0, memories)

    def _carried(self, state: Mapping[str, Tensor]) -> SegmentedState:
        """State from its tensors by name."""
        return SegmentedState(state["cached"], int(state["place"]), of_blocks(state, self.memories))

    def _borders(self, number: int, place: int) -> list[int]:
        """Positions at which to cut a call into passages: the ends of segments, if they cannot be
        read together.

        With gradients they cannot, because a segment's loss must have no gradient in earlier ones.
        With memory they cannot, because a segment reads what the previous one wrote at its end.
        """
        has_memory = any(present(spec) for spec in self.memories)
        cuts_segments = self.reads_segments_apart or has_memory
        if not cuts_segments and not torch.is_grad_enabled():
            return []
        return list(range(self.length - place, number, self.length))

    def _read(
        self, inputs: Inputs, carried: SegmentedState
    ) -> tuple[Tensor, Tensor | None, SegmentedState, list[Tensor]]:
        """f, g and the state for positions that are read together, and the auxiliary losses of
        layers.
        """
        embedded = inputs.embedded
        number = embedded.shape[1]
        num_leading = 0
        if self.leading is not None:
            num_leading = len(self.leading)
            leading = self.leading.to(embedded.dtype).expand(len(embedded), -1, -1)
            embedded = torch.cat((leading, embedded), 1)
        x = self.block_input(embedded)

        cached = carried.cached.shape[2]
        place_after = (carried.place + number) % self.length
        spans = self._spans(cached, number, carried.place)
        distances = self.distances(max(span.stop - span.begin for span in spans), x)
        passage = SegmentContext(
            cached,
            carried.place,
            spans,
            distances,
            place_after == 0,
            inputs.document_offset,
            inputs.tokens,
        )

        # The cache grows during a segment. At its end it is cut to M positions before the next one.
        num_dropped = max(0, cached + number - self.memory - place_after)
        caches: list[Tensor] = []
        memories: list[Any] = []
        losses: list[Tensor] = []
        ffn_input = None
        # Caches may be in the precision of an earlier call.
        pasts = carried.cached.to(x.dtype)
        for block, past, memory in zip(self.blocks, pasts, carried.memories, strict=True):
            x, memory = cast(StreamBlock, block).apply_lookup(x, passage, memory)
            # Detached, because a cache with a graph would keep all earlier segments in memory.
            cache = torch.cat((past, x[:, num_leading:].detach()), 1)
            caches.append(cache[:, num_dropped:])
            x, ffn_input, attended = block(past, x, passage, memory)
            memories.append(attended.memory if block.keeps_graph else _detach(attended.memory))
            if attended.auxiliary_loss is not None:
                losses.append(attended.auxiliary_loss)

        after = SegmentedState(torch.stack(caches), place_after, memories)
        return self.block_output(x[:, num_leading:]), ffn_input, after, losses

    def _spans(self, cached: int, number: int, place: int) -> list[Span]:
        """Spans by segment of the `number` positions after the cached ones."""
        end = cached + number
        spans: list[Span] = []
        for start in range(cached - place, end, self.length):
            # The first segment may have begun among the cached positions, the last may go on.
            first = max(start, cached)
            stop = min(start + self.length, end)
            begin = max(0, start - self.memory)
            spans.append(Span(begin, first, stop))
        return spans


def _detach(memory: Any) -> Any:
    """The memory of a block, without gradients."""
    parts = {name: part.detach() for name, part in present(memory).items()}
    return memory_of(parts, memory)


class SegmentedByDistance(Segmented):
    """Network with relative positions, given by sinusoids of distances; the last block's output is
    normalized.
    """

    def __init__(self, config: DistancesConfig) -> None:
        super().__init__(config)
        self.scale = config.width**0.5
        self.norm = nn.LayerNorm(config.width)

    def block_input(self, embedded: Tensor) -> Tensor:
        return self.dropout(embedded * self.scale)

    def distances(self, longest: int, like: Tensor) -> Tensor:
        """Sinusoids, [longest + 1, d]."""
        vectors = sinusoids(longest + 1, like.shape[2], like.device).flip(0).to(like.dtype)
        return self.dropout(vectors)

    def block_output(self, x: Tensor) -> Tensor:
        return self.norm(x)
