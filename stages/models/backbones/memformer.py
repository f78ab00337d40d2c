"""Memformer: an encoder reads the previous segment and a memory of slots, and a decoder predicts
the segment.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.backbone import Backbone, Encoding, Inputs, State
from stages.models.backbones.stream_configs import MemformerConfig
from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import BlockSizes
from stages.models.layers.stacks import Attention, DecoderBlock, EncoderBlock, Heads
from stages.models.vocabulary import INITIAL_NORM


def slot_weights(
    queries: Float[Tensor, "B heads k d_head"],
    own_keys: Float[Tensor, "B heads k d_head"],
    keys: Float[Tensor, "B heads S d_head"],
    temperature: float,
) -> Float[Tensor, "B heads k 1+S"]:
    """softmax([q_i·k_i, q_i·K] / (sqrt(d_head) temperature)): slot i sees itself and the S rows,
    but no other slot.

    >>> one, two = torch.ones(1, 1, 1, 1), torch.tensor([0.0, 1.0]).view(1, 1, 2, 1)
    >>> slot_weights(one, one, two, 1.0).flatten()
    tensor([0.4223, 0.1554, 0.4223])
    """
    # No product of all slots with all: slots that see each other would become similar.
    itself = (queries * own_keys).sum(3, keepdim=True)
    scores = torch.cat((itself, queries @ keys.transpose(2, 3)), 3)
    return (scores / (queries.shape[3] ** 0.5 * temperature)).softmax(3)


def biased_norm(
    slots: Float[Tensor, "*B k d"], bias: Float[Tensor, "k d"]
) -> Float[Tensor, "*B k d"]:
    """(m_i + v_i) / |m_i + v_i|: without new input a slot moves towards v_i / |v_i|, faster for a
    longer v_i.

    >>> biased_norm(torch.tensor([[[3.0, 3.0]]]), torch.tensor([[0.0, 1.0]]))
    tensor([[[0.6000, 0.8000]]])
    """
    return F.normalize(slots + bias, dim=-1)


class SlotWriter(nn.Module):
    """Writes rows into slots.

    A slot attends to itself, without projection, and to projected rows. Biases are short, because a
    long one would forget everything at once. They differ, because equal slots would stay equal.

    Source: Wu et al. 2022 (Memformer, arXiv:2010.06891), section 3.3.
    """

    def __init__(
        self, config: BlockSizes, slots: int, temperature: float, forgetting: float
    ) -> None:
        super().__init__()
        self.heads = config.heads
        self.temperature = temperature
        self.query, self.key, self.value = (
            nn.Linear(config.width, config.width, bias=False) for _ in range(3)
        )
        for linear in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(linear.weight)
        slot_bias = nn.init.normal_(torch.empty(slots, config.width))
        self.bias = nn.Parameter(F.normalize(slot_bias, dim=1) * forgetting)

    def begin(self, rows: int) -> Tensor:
        """Create the slots of new streams, [rows, k, d]."""
        return F.normalize(self.bias, dim=1).expand(rows, -1, -1)

    def weights(self, memory: Tensor, read: Tensor) -> Tensor:
        """Attention weights of slots [B, k, d] on themselves, then on rows [B, S, d]; [B, heads, k,
        1 + S].
        """
        keys = (self._by_head(self.key(memory)), self._by_head(self.key(read)))
        return slot_weights(self._by_head(self.query(memory)), *keys, self.temperature)

    def forward(self, memory: Tensor, read: Tensor) -> Tensor:
        """Slots [B, k, d] and rows [B, S, d] -> new slots, [B, k, d]."""
        # half precision would change slots without input
        with torch.autocast(memory.device.type, enabled=False):
            rows = read.to(memory.dtype)
            # a slot reads itself [B, heads, k, 1], and the rows [B, heads, k, S]
            itself, others = self.weights(memory, rows).tensor_split((1,), 3)
            slots_by_head = self._by_head(memory)
            values_by_head = self._by_head(self.value(rows))
            mixed = itself * slots_by_head + others @ values_by_head
            return biased_norm(mixed.transpose(1, 2).flatten(2), self.bias)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class MemformerState(NamedTuple):
    """State that is passed from call to call."""

    memory: Tensor
    """Slots, [B, k, d]."""
    before: Tensor
    """Previous segment, [B, ≤ L + summary tokens, d]: its embeddings at the start of a segment,
    later its encoding.
    """
    segment: Tensor
    """Embeddings of the current segment so far, [B, < L, d]."""
    past: list[Heads]
    """The decoder's keys and values for these, [B, heads, < L, d_head]."""


class Memformer(Backbone):
    """M_t, H_t = encoder(segment t - 1, M_{t-1}) at the start of segment t; f = decoder(segment t,
    H_t).

    A segment is encoded when the next one begins, not when it ends. So the encoder has a gradient
    in every update. Gradients flow through M and embeddings into earlier segments of the same
    update.

    Source: Wu et al. 2022 (arXiv:2010.06891), section 3; positions are learned.
    """

    keeps_graph = True
    replays = True

    def __init__(self, config: MemformerConfig) -> None:
        super().__init__()
        assert config.segment_length is not None, "the stage fills it in"
        self.length = config.segment_length
        self.heads = config.heads
        self.scale = config.width**0.5
        self.dropout = Dropout(config.dropout)
        sizes = (self.length, self.length, config.summary_tokens)
        rows = (
            nn.Parameter(
                nn.init.normal_(torch.empty(n, config.width), std=INITIAL_NORM / self.scale)
            )
            for n in sizes
        )
        self.encoder_positions, self.decoder_positions, summary = rows
        self.summary_tokens = summary if config.summary_tokens else None
        self.encoder = nn.ModuleList(
            EncoderBlock(config, config.encoder_layers, config.slots)
            for _ in range(config.encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(config.width)
        writes = (config.slots, config.temperature, config.forgetting)
        self.writer = SlotWriter(config, *writes) if config.slots else None
        self.blocks = nn.ModuleList(
            DecoderBlock(config, config.layers) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, n, d] and state -> hidden [B, n, d] (f), ffn_input [B, n, d] (g), the
        state after them.
        """
        carried = self._opened(inputs)
        number = inputs.embedded.shape[1]
        # a call may begin within a segment; it is cut where segments end
        first_end = self.length - carried.segment.shape[1]
        ends = range(first_end, number, self.length)

        hidden = list[Tensor]()
        ffn_inputs = list[Tensor]()
        for start, stop in pairwise([0, *ends, number]):
            carried = self._encoded(carried)
            part_hidden, ffn_input, carried = self._read(inputs.embedded[:, start:stop], carried)
            hidden.append(part_hidden)
            ffn_inputs.append(ffn_input)
        return Encoding(torch.cat(hidden, 1), torch.cat(ffn_inputs, 1), self._state(carried))

    def advance(self, inputs: Inputs) -> State:
        carried = self._opened(inputs)
        if inputs.embedded.shape[1] != self.length or carried.segment.shape[1]:
            return self.read(inputs).state
        return self._state(self._encoded(carried)._replace(before=inputs.embedded))

    def _opened(self, inputs: Inputs) -> MemformerState:
        """The state that came with the inputs, or that of an empty stream."""
        state = inputs.state
        if state is not None:
            past = []
            for number in range(1, len(self.blocks) + 1):
                heads = Heads.of(state, f"block{number}.past")
                assert heads is not None, "the state is of another model"
                past.append(heads)
            return MemformerState(state["memory"], state["before"], state["segment"], past)

        embedded = inputs.embedded
        num_rows, _, width = embedded.shape
        empty = embedded.new_empty(num_rows, 0, width)
        memory = empty if self.writer is None else self.writer.begin(num_rows)
        return MemformerState(memory, empty, empty, self._no_past(embedded))

    def _no_past(self, like: Tensor) -> list[Heads]:
        """Keys and values of no position, for each block."""
        num_rows, _, width = like.shape
        empty = like.new_empty(num_rows, self.heads, 0, width // self.heads)
        return [Heads(empty, empty)] * len(self.blocks)

    def _state(self, carried: MemformerState) -> dict[str, Tensor]:
        state = {"memory": carried.memory, "before": carried.before, "segment": carried.segment}
        for number, past in enumerate(carried.past, 1):
            state |= past.named(f"block{number}.past")
        return state

    def _encoded(self, carried: MemformerState) -> MemformerState:
        """At the start of a segment, let the encoder read the previous one and update the memory."""
        is_within_segment = carried.segment.shape[1] > 0
        has_previous = carried.before.shape[1] > 0
        if is_within_segment or not has_previous:
            return carried

        x = carried.before + self.encoder_positions
        if self.summary_tokens is not None:
            summary = self.summary_tokens.expand(len(x), -1, -1)
            x = torch.cat((x, summary), 1)
        x = self.dropout(x * self.scale)
        for block in self.encoder:
            x = block(x, memory=carried.memory)
        encoded = self.encoder_norm(x)

        memory = carried.memory
        if self.writer is not None:
            memory = self.writer(memory, encoded)
        return carried._replace(memory=memory, before=encoded)

    def _read(
        self, embedded: Tensor, carried: MemformerState
    ) -> tuple[Tensor, Tensor, MemformerState]:
        """f, g and the state after positions of one segment."""
        place = carried.segment.shape[1]
        positions = self.decoder_positions[place : place + embedded.shape[1]]
        x = self.dropout((embedded + positions) * self.scale)

        # the first segment has no segment before it to read
        has_source = carried.before.shape[1] > 0
        past = []
        for block, block_past in zip(self.blocks, carried.past, strict=True):
            attention: Attention = block.source_attention  # type: ignore[assignment]
            encoded = attention.of(carried.before) if has_source else None
            x, ffn_input, heads = block(x, block_past, encoded)
            past.append(heads)

        segment = torch.cat((carried.segment, embedded), 1)
        after = carried._replace(segment=segment, past=past)
        # at its end, a segment becomes the previous one, and an empty one begins
        if segment.shape[1] == self.length:
            empty = segment[:, :0]
            after = MemformerState(carried.memory, segment, empty, self._no_past(embedded))
        return self.norm(x), ffn_input, after
