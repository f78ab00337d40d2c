"""Transformer-XL: segments that attend to hidden states of the positions before them, by distance."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from stages.models.backbone import Backbone, Compilable, Encoding, Inputs
from stages.models.backbones.transformer_xl_config import TransformerXLConfig, in_block
from stages.models.layers import FEED_FORWARD, STREAM_ATTENTION
from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import PLACES, present
from stages.models.layers.sinusoids import sinusoids
from stages.models.layers.sublayer import Attended, FeedForward, Passage, Span, StreamAttention, StreamInputs


class Block(nn.Module):
    """Attention, then feed-forward, each on the normalized residual stream."""

    def __init__(self, config: TransformerXLConfig, number: int) -> None:
        super().__init__()
        attention, feed_forward = (config.layer_in(place, number) for place in PLACES)
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention: StreamAttention[Any] = STREAM_ATTENTION.load(attention.name)(config, attention)
        self.ffn_norm = nn.LayerNorm(config.width)
        self.ffn: FeedForward = FEED_FORWARD.load(feed_forward.name)(config, feed_forward)
        self.dropout = Dropout(config.dropout)

    def initialize(self, blocks: int) -> None:
        """Let the weights begin, in a stack of so many blocks."""
        self.attention.initialize(blocks)
        self.ffn.initialize(blocks)

    def forward(
        self, past: Tensor, x: Tensor, passage: Passage, memory: NamedTuple
    ) -> tuple[Tensor, Tensor, Attended[Any]]:
        """Cached [B, m, d] and present [B, n, d] -> the next residual stream, the feed-forward input, attention's."""
        raw = torch.cat((past, x), 1)
        inputs = StreamInputs(raw, self.attention_norm(raw), self.attention_norm)
        attended: Attended[Any] = self.attention(inputs, passage, memory)
        x = x + self.dropout(attended.hidden)
        ffn_input = self.ffn_norm(x)
        return x + self.dropout(self.ffn(ffn_input)), ffn_input, attended


class Carried(NamedTuple):
    """State passed from passage to passage."""

    cached: Tensor
    """Inputs of each layer at the latest m positions, [layers, B, m, d]."""
    place: int
    """How many positions of the segment under way they end with."""
    memories: list[NamedTuple]
    """Memory of each layer."""


class TransformerXL(Backbone, Compilable):
    """Embeddings -> (f, g); carries the inputs of each layer, and where in a segment they end.

    A position of a segment attends to the M positions before its segment, without gradient, and to
    those of its own segment up to itself. However a stream is cut into calls, the numbers are the same.
    What lies further back is up to the attention layers: what they remember is carried too.

    Source: Dai et al. 2019 (arXiv:1901.02860), section 3.
    """

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        assert config.segment_length is not None and config.mem_length is not None, "the stage fills them in"
        self.length, self.memory = config.segment_length, config.mem_length
        self.scale = config.width**0.5
        self.dropout = Dropout(config.dropout)
        blocks = [Block(config, number + 1) for number in range(config.layers)]
        for block in blocks:
            block.initialize(config.layers)
        self.blocks = nn.ModuleList(blocks)
        self.memories: list[type[Any]] = [type(config.memory_spec(n + 1, self.length)) for n in range(config.layers)]
        self.norm = nn.LayerNorm(config.width)
        self.keeps_graph = any(block.attention.keeps_graph for block in blocks)

    def compiled_parts(self) -> list[nn.Module]:
        return list(self.blocks)  # around them shapes follow from the state: that is Python's work

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, n, d] and state -> hidden [B, n, d] (f), ffn_input [B, n, d] (g), the state after them.

        The state is `Carried`: `cached`, `place`, int64 [1], and the memory of each layer under its block's number.
        """
        embedded = inputs.embedded
        carried = self._begin(embedded) if inputs.state is None else self._opened(inputs.state)
        hidden, ffn_input, losses = [], [], list[Tensor]()
        borders = self._borders(embedded.shape[1], carried.place)
        for piece in _cut(inputs, borders):
            f, g, carried, auxiliary = self._read(piece, carried)
            hidden.append(f)
            ffn_input.append(g)
            losses += auxiliary
        total = torch.stack(losses).sum() if losses else None
        return Encoding(torch.cat(hidden, 1), torch.cat(ffn_input, 1), self._state(carried), total)

    def _begin(self, embedded: Tensor) -> Carried:
        cached = embedded.new_empty((len(self.blocks), len(embedded), 0, embedded.shape[2]))
        return Carried(cached, 0, [cast(Block, block).attention.begin(embedded) for block in self.blocks])

    def _opened(self, state: Mapping[str, Tensor]) -> Carried:
        memories = []
        for block, memory in enumerate(self.memories, 1):
            names = in_block(block, {field: field for field in memory._fields})
            memories.append(memory(**{field: state[name] for name, field in names.items() if name in state}))
        return Carried(state["cached"], int(state["place"]), memories)

    def _state(self, carried: Carried) -> dict[str, Tensor]:
        # The place stays on the CPU, where reading it waits for no GPU.
        state = {"cached": carried.cached, "place": torch.tensor([carried.place])}
        for block, memory in enumerate(carried.memories, 1):
            state |= in_block(block, present(memory))
        return state

    def _borders(self, number: int, place: int) -> list[int]:
        """Where to cut what is read at once: at segments where gradients are wanted, for those before are to have none.

        Or where a layer remembers, for what it writes at the end of a segment the next one reads.
        """
        if not torch.is_grad_enabled() and not any(memory._fields for memory in self.memories):
            return []
        return list(range(self.length - place, number, self.length))

    def _read(self, inputs: Inputs, carried: Carried) -> tuple[Tensor, Tensor, Carried, list[Tensor]]:
        """As `read`, of positions read at once; and the auxiliary losses of layers."""
        x = self.dropout(inputs.embedded * self.scale)
        passage = self._passage(x, carried)._replace(document_offset=inputs.document_offset, tokens=inputs.tokens)
        after = (carried.place + x.shape[1]) % self.length
        # The cache grows with the segment under way, and is cut back to M positions before it when that ends.
        forget = max(0, passage.cached + x.shape[1] - self.memory - after)
        kept, memories, losses = [], [], []
        for block, past, memory in zip(self.blocks, carried.cached.to(x.dtype), carried.memories, strict=True):
            kept.append(torch.cat((past, x.detach()), 1)[:, forget:])
            x, ffn_input, attended = block(past, x, passage, memory)
            kept_graph = cast(Block, block).attention.keeps_graph
            memories.append(attended.memory if kept_graph else _constant(attended.memory))
            losses += [] if attended.auxiliary_loss is None else [attended.auxiliary_loss]
        return self.norm(x), ffn_input, Carried(torch.stack(kept), after, memories), losses

    def _passage(self, x: Tensor, carried: Carried) -> Passage:
        """Embeddings [B, n, d] behind what is carried."""
        cached, place = carried.cached.shape[2], carried.place
        spans = self._spans(cached, x.shape[1], place)
        distances = self.dropout(self._distances(max(span.stop - span.begin for span in spans), x))
        return Passage(cached, place, spans, distances, (place + x.shape[1]) % self.length == 0)

    def _spans(self, cached: int, number: int, place: int) -> list[Span]:
        """The segments' parts of `number` positions behind the cached ones."""
        end = cached + number
        starts = range(cached - place, end, self.length)
        return [Span(max(0, s - self.memory), max(s, cached), min(s + self.length, end)) for s in starts]

    def _distances(self, longest: int, like: Tensor) -> Tensor:
        """Sinusoids of the distances `longest` … 0, [longest + 1, d]."""
        return sinusoids(longest + 1, like.shape[2], like.device).flip(0).to(like.dtype)


def _cut(inputs: Inputs, borders: list[int]) -> Iterator[Inputs]:
    """Inputs [B, n] in pieces, which end at the borders."""
    of_position = {"embedded": inputs.embedded, "document_offset": inputs.document_offset, "tokens": inputs.tokens}
    for start, stop in pairwise((0, *borders, inputs.embedded.shape[1])):
        pieces = {name: part[:, start:stop] for name, part in of_position.items() if part is not None}
        yield inputs._replace(**pieces)


def _constant(memory: Any) -> Any:
    """A layer's memory without its gradient."""
    return memory._replace(**{name: part.detach() for name, part in present(memory).items()})
