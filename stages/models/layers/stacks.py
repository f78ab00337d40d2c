"""Attention over given keys and values, the chosen layers of a block, and the blocks of encoders
and decoders.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.errors import UsageError
from stages.models.backbone import named_below
from stages.models.layers import FEED_FORWARD, LOOKUP
from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import PLACES, AttentionConfig, BlockSizes, DenseSettings
from stages.models.layers.sublayer import Dense, FeedForward, Lookup, initialize, share_weights
from stages.registry import Registry


class Heads(NamedTuple):
    """Keys and values that attention reads, [B, heads, S, d_head] each."""

    keys: Tensor
    values: Tensor

    def after(self, before: "Heads | None") -> "Heads":
        """Append to the keys and values of earlier positions; None: there are none."""
        if before is None:
            return self
        keys = torch.cat((before.keys, self.keys), 2)
        values = torch.cat((before.values, self.values), 2)
        return Heads(keys, values)

    def named(self, name: str) -> dict[str, Tensor]:
        """Tensors of a state, with the name of a layer as prefix."""
        return {f"{name}.keys": self.keys, f"{name}.values": self.values}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], name: str) -> "Heads | None":
        """Keys and values of a layer from a state; None: there are none yet."""
        parts = named_below(tensors, f"{name}.")
        return cls(parts["keys"], parts["values"]) if parts else None


class Attention(nn.Module):
    """Attention over given keys and values, of the same sequence or another one."""

    def __init__(self, config: BlockSizes) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.query = nn.Linear(config.width, config.width)
        self.read = nn.Linear(config.width, 2 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def of(self, x: Float[Tensor, "B S d"]) -> Heads:
        """Keys and values of positions [B, S, d]."""
        keys, values = self.read(x).unflatten(-1, (2, self.heads, -1)).unbind(2)
        return Heads(keys.transpose(1, 2), values.transpose(1, 2))

    def forward(
        self,
        x: Float[Tensor, "B L d"],
        read: Heads,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "B L d"]:
        """[B, L, d] -> [B, L, d].

        Args:
            read: keys and values.
            mask: keys that each position may read, bool, broadcast to [B, heads, L, S]; None: all.
            causal: whether position i only reads keys up to i; used instead of a mask.
        """
        queries = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(
            queries, *read, attn_mask=mask, dropout_p=dropout, is_causal=causal
        )
        return self.out(y.transpose(1, 2).flatten(2))


def lower(length: int, total: int, device: torch.device) -> Tensor:
    """Causal mask for the last `length` of `total` positions, bool [length, total].

    >>> lower(2, 3, torch.device("cpu")).int()
    tensor([[1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return torch.ones(length, total, dtype=torch.bool, device=device).tril(total - length)


class ChosenLayers(nn.Module):
    """Lookup, attention and feed-forward layer of a block, chosen by its settings, with the norms
    before them.
    """

    def __init__(self, config: AttentionConfig, number: int, attention: Registry) -> None:
        """`number`: that of the block, from 1; `attention`: registry of attention layers."""
        super().__init__()
        lookup, attends, feeds = (config.layer_in(place, number) for place in PLACES)

        self.lookup: Lookup[Any] = LOOKUP.load(lookup.name)(config, lookup)
        self.lookup_reads_documents = lookup.reads_documents

        self.attention_norm = nn.LayerNorm(config.width)
        self.attention: Any = attention.load(attends.name)(config, attends)
        self.attention_reads_documents = attends.reads_documents

        self.ffn_norm = nn.LayerNorm(config.width)
        self.ffn: FeedForward = FEED_FORWARD.load(feeds.name)(config, feeds)
        self.dropout = Dropout(config.dropout)

    def look_up(
        self,
        x: Float[Tensor, "B n d"],
        tokens: Tensor | None,
        document_offset: Tensor | None,
        memory: Any,
    ) -> tuple[Tensor, Any]:
        """Residual stream [B, n, d] after the lookup, and the lookup's memory.

        `tokens` and `document_offset` are int64 [B, n], as in `SegmentContext`.
        """
        # Inputs have offsets if any layer of the model asks for them. A lookup whose scope is the
        # stream must not see those that an attention asked for.
        if not self.lookup_reads_documents:
            document_offset = None
        return self.lookup(x, tokens, document_offset, memory)


def initialize_layers(blocks: Iterable[ChosenLayers], number: int) -> None:
    """Share weights between blocks, then initialize all weights; `number` is the number of blocks
    in the stack.
    """
    blocks = list(blocks)
    share_weights(nn.ModuleList(blocks))
    for block in blocks:
        for layer in (block.lookup, block.attention, block.ffn):
            _require_stored(layer)
            layer.initialize(number)


def _require_stored(layer: nn.Module) -> None:
    """Check that all tensors of the layers are stored with the model.

    Raises: UsageError if a layer has tensors that its `state_dict` lacks: a loaded model would
    not have them.
    """
    buffers = {name for name, _ in layer.named_buffers()}
    missing = buffers - layer.state_dict().keys()
    for module in layer.modules():
        # Plain attributes: parameters and buffers do not stand in `vars`.
        missing |= {name for name, value in vars(module).items() if isinstance(value, Tensor)}
    if missing:
        raise UsageError(
            f"Layer {type(layer).__name__} has tensors that its files will lack, {', '.join(sorted(missing))}: "
            "register_buffer each, and let it be persistent, or keep numbers of Python."
        )


class EncoderBlock(nn.Module):
    """Bidirectional attention, then attention to slots if there are any, then feed-forward."""

    def __init__(self, config: BlockSizes, blocks: int, slots: int = 0) -> None:
        """`blocks`: number of blocks in the stack; `slots`: number of slots, 0 for none."""
        super().__init__()
        # The order of creation is that of random numbers.
        self.attention_norm = nn.LayerNorm(config.width)
        self.ffn_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.ffn = Dense(config, DenseSettings())
        self.memory_norm = nn.LayerNorm(config.width) if slots else None
        self.memory = Attention(config) if slots else None
        self.dropout = Dropout(config.dropout)

        initialize(self.attention, self.attention.out, blocks)
        if self.memory is not None:
            initialize(self.memory, self.memory.out, blocks)
        self.ffn.initialize(blocks)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:
        """Inputs [B, S, d], mask of keys that count, and slots [B, k, d] -> residual stream [B, S,
        d].
        """
        normalized = self.attention_norm(x)
        heads = self.attention.of(normalized)
        x = x + self.dropout(self.attention(normalized, heads, mask))

        if self.memory is not None and self.memory_norm is not None:
            assert memory is not None, "slots are read"
            slots = self.memory.of(memory)
            x = x + self.dropout(self.memory(self.memory_norm(x), slots))

        added: Tensor = self.dropout(self.ffn(self.ffn_norm(x)))
        return x + added


class DecoderBlock(nn.Module):
    """Causal attention, then attention to the encoder's outputs, then feed-forward."""

    def __init__(self, config: BlockSizes, blocks: int, ffn: FeedForward | None = None) -> None:
        """`blocks`: number of blocks in the stack; `ffn`: feed-forward layer, None for a dense one."""
        super().__init__()
        self.attention_norm, self.source_norm, self.ffn_norm = (
            nn.LayerNorm(config.width) for _ in range(3)
        )
        self.attention = Attention(config)
        self.source_attention = Attention(config)
        self.ffn: FeedForward = Dense(config, DenseSettings()) if ffn is None else ffn
        self.dropout = Dropout(config.dropout)
        for attention in (self.attention, self.source_attention):
            initialize(attention, attention.out, blocks)
        self.ffn.initialize(blocks)

    def forward(
        self, x: Tensor, past: Heads | None, source: Heads | None, source_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Heads]:
        """[B, L, d] -> residual stream, input of the feed-forward layer, and keys and values of all
        positions so far.

        Args:
            past: keys and values of earlier positions; None: there are none.
            source: keys and values of the encoder's outputs; None: there are none yet.
            source_mask: keys of the source that count; None: all.
        """
        normalized = self.attention_norm(x)
        heads = self.attention.of(normalized).after(past)

        # The fused kernel masks a square itself, and a single position reads everything.
        length = x.shape[1]
        total = heads.keys.shape[2]
        is_square = length == total
        mask = None if is_square or length == 1 else lower(length, total, x.device)
        read = self.attention(normalized, heads, mask, causal=is_square)
        x = x + self.dropout(read)

        if source is not None:
            source_read = self.source_attention(self.source_norm(x), source, source_mask)
            x = x + self.dropout(source_read)

        ffn_input = self.ffn_norm(x)
        return x + self.dropout(self.ffn(ffn_input)), ffn_input, heads
