"""Attention to earlier positions of the segment, and to the best of many keys from before it."""

from functools import cache
from math import log, log2
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from stages.models.layers.memory_settings import KeysAndValues, MemorizingSettings
from stages.models.layers.settings import AttentionConfig
from stages.models.layers.sublayer import (
    Attended,
    HasSeparateParameters,
    SegmentContext,
    SeparateParameters,
    StreamAttention,
    StreamInputs,
    initialize,
)


class BucketBias(nn.Module):
    """Learned bias of attention scores, for each head and bucket of distances.

    Source: Raffel et al. 2020 (T5, arXiv:1910.10683), section 2.1.
    """

    def __init__(self, heads: int, buckets: int, longest: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(buckets, heads))
        self.longest = longest

    def forward(self, queries: int, keys: int) -> Float[Tensor, "heads queries keys"]:
        """Biases between the last `queries` positions and all `keys` positions; -inf for future
        positions.
        """
        device = self.bias.device
        query_positions = torch.arange(keys - queries, keys, device=device)
        key_positions = torch.arange(keys, device=device)
        distance = query_positions[:, None] - key_positions

        bucket_of_distance = bucket_numbers(keys, len(self.bias), self.longest).to(device)
        # Future positions take the bucket of distance 0, and are masked.
        bucket = bucket_of_distance[distance.clamp(min=0)]
        bias = self.bias[bucket].permute(2, 0, 1)
        return bias.masked_fill(distance < 0, -torch.inf)


@cache
def bucket_numbers(distances: int, buckets: int, longest: int) -> Tensor:
    """Bucket of each distance from 0, int64 [distances].

    Half of the buckets hold one distance each; the others grow with the logarithm of the distance.

    >>> bucket_numbers(12, buckets=8, longest=16).tolist()
    [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6]
    """
    single = buckets // 2
    # Buckets for each factor e of the distance; a ratio of 1 has the logarithm 0.
    spread = (buckets - single) / log(max(longest / single, 1 + 1e-9))
    numbers: list[int] = []
    for distance in range(distances):
        if distance < single:
            numbers.append(distance)
        else:
            bucket = single + int(log(distance / single) * spread)
            numbers.append(min(buckets - 1, bucket))
    return torch.tensor(numbers)


SCORES = 1 << 24
"""Maximum number of scores in memory at a time."""


class Retrieved(NamedTuple):
    """The k best memory entries of each head and query; fewer if the memory has fewer."""

    read: Float[Tensor, "B heads n d_head"]
    """Weighted mean of the values; 0 where a query sees no entry."""
    ages: Int64[Tensor, "B heads n k"]
    """Distance from each entry to the query, in positions; the best entry first."""
    scores: Float[Tensor, "B heads n k"]
    """-inf for entries that the query may not see."""
    weights: Float[Tensor, "B heads n k"]


class Search(nn.Module):
    """Softmax over the k entries with the largest scores, of the consecutive positions just before
    the segment.

    Queries get gradients through the scores of the chosen entries. The memory and the choice get
    none.
    """

    def __init__(self, neighbors: int) -> None:
        super().__init__()
        self.neighbors = neighbors

    def forward(
        self, q: Tensor, keys: Tensor, values: Tensor, place: int, document_offset: Tensor | None
    ) -> Retrieved:
        """Read the k entries with the best scores for each query.

        Args:
            q: scaled queries [B, heads, n, d_head].
            keys, values: [B, heads, N, d_head], the oldest first.
            place: position of the first query within its segment.
            document_offset: int64 [B, n], how many positions back a query may see; None: all.

        Three entries have scores 1, 3 and 2, and the last is one position back. The two best are
        read:

        >>> keys = torch.tensor([[[[1.0], [3.0], [2.0]]]])
        >>> retrieved = Search(neighbors=2)(torch.ones(1, 1, 1, 1), keys, 10 * keys, place=0, document_offset=None)
        >>> retrieved.ages.flatten().tolist(), retrieved.scores.flatten().tolist()
        ([2, 1], [3.0, 2.0])
        >>> retrieved.weights.flatten(), retrieved.read.flatten()  # σ(1) of 30, the rest of 20
        (tensor([0.7311, 0.2689]), tensor([27.3106]))
        """
        # The choice has no gradient, and the chosen scores are computed again with one. Otherwise
        # the scores of all N entries would be kept for the backward pass.
        chosen = self._best(q.detach(), keys, place, document_offset)
        chosen_keys = _gather(keys, chosen)  # [B, heads, n, k, d_head]
        scores = (chosen_keys @ q[..., None])[..., 0]

        # Entry N - 1 is one position before the segment.
        num_queries = q.shape[2]
        num_entries = keys.shape[2]
        query_places = place + torch.arange(num_queries, device=q.device)
        ages = num_entries - chosen + query_places[:, None]
        if document_offset is not None:
            is_hidden = ages > document_offset[:, None, :, None]
            scores = scores.masked_fill(is_hidden, -torch.inf)

        has_entry = scores.isfinite().any(-1, keepdim=True)
        # A softmax over only -inf, and its gradient, are NaN, and stay so when multiplied by 0.
        safe_scores = scores.masked_fill(~has_entry, 0.0)
        weights = safe_scores.softmax(-1) * has_entry

        chosen_values = _gather(values, chosen)
        read = (weights[..., None, :] @ chosen_values)[..., 0, :]
        return Retrieved(read, ages, scores, weights)

    @torch.no_grad()
    def _best(self, q: Tensor, keys: Tensor, place: int, document_offset: Tensor | None) -> Tensor:
        """Indices of the best entries, int64 [B, heads, n, k], computed for some queries at a time."""
        num_rows, heads, num_entries, _ = keys.shape
        num_queries = q.shape[2]
        k = min(self.neighbors, num_entries)
        # Scores of all entries are large, so they exist for a few queries only.
        scores_per_query = max(1, num_rows * heads * num_entries)
        at_once = max(1, SCORES // scores_per_query)
        entry = torch.arange(num_entries, device=keys.device)

        # Index of the oldest entry that each query may see, [B, n]; None: it sees all.
        first_visible = None
        if document_offset is not None:
            query = num_entries + place + torch.arange(num_queries, device=keys.device)
            first_visible = query - document_offset

        best: list[Tensor] = []
        for start in range(0, num_queries, at_once):
            part = slice(start, start + at_once)
            scores = q[:, :, part] @ keys.transpose(2, 3)
            if first_visible is not None:
                is_hidden = entry < first_visible[:, None, part, None]
                scores.masked_fill_(is_hidden, -torch.inf)
            best.append(scores.topk(k).indices)
        return torch.cat(best, 2)


def _gather(memory: Tensor, chosen: Tensor) -> Tensor:
    """Gather entries [B, heads, N, d_head] at indices [B, heads, n, k]; result [B, heads, n, k,
    d_head].
    """
    rows = chosen.flatten(2)[..., None].expand(-1, -1, -1, memory.shape[3])
    return memory.gather(2, rows).unflatten(2, chosen.shape[2:])


LARGEST_SCALE = 100.0
USUAL_LENGTH = 128
"""Segment length that is assumed if the model has none."""


class MemorizingAttention(StreamAttention[KeysAndValues], HasSeparateParameters):
    """Local attention and attention to the best k of N entries, mixed by one gate for each head.

    Queries and keys are normalized to length 1, and each head has a learned scale. At the end of a
    segment its keys and values enter the memory unchanged.

    Source: Wu et al. 2022 (arXiv:2203.08913), section 3; Henry et al. 2020 (QKNorm,
    arXiv:2010.04245) for the scale.
    """

    def __init__(self, config: AttentionConfig, settings: MemorizingSettings) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.gate_bias = settings.gate_bias
        self.gate_lr = settings.gate_lr
        self.max_entries = settings.long_length
        self.length = getattr(config, "segment_length", None) or USUAL_LENGTH
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.log_scale = nn.Parameter(torch.empty(config.heads))
        self.gate = nn.Parameter(torch.empty(config.heads))
        self.distance = BucketBias(config.heads, settings.buckets, settings.longest_distance)
        self.search = Search(settings.neighbors)
        self.out = nn.Linear(config.width, config.width)

    def initialize(self, blocks: int) -> None:
        """Initialize the weights; scales are log2(L² - L) for segments of L inputs (QKNorm)."""
        initialize(self, self.out, blocks)
        nn.init.constant_(self.log_scale, log(max(1.0, log2(max(2, self.length**2 - self.length)))))
        nn.init.constant_(self.gate, self.gate_bias)
        nn.init.zeros_(self.distance.bias)

    def separate_parameters(self) -> SeparateParameters:
        """The gates, if they have a learning rate of their own."""
        return SeparateParameters([self.gate] if self.gate_lr else [], self.gate_lr)

    def begin(self, x: Tensor) -> KeysAndValues:
        shape = (len(x), self.heads, 0, x.shape[2] // self.heads)
        empty = x.new_empty(shape, dtype=self.log_scale.dtype)
        return KeysAndValues(empty, empty)

    def gates(self) -> Tensor:
        """Share of each head's attention that goes to memory, [heads]."""
        return self.gate.sigmoid()

    def scales(self) -> Tensor:
        """Factor of each head's queries, at most LARGEST_SCALE, [heads].

        The gradient ignores the bound, so a head above it can come back.
        """
        bounded = self.log_scale.clamp(max=log(LARGEST_SCALE))
        return (self.log_scale + (bounded - self.log_scale).detach()).exp()

    def forward(
        self, inputs: StreamInputs, passage: SegmentContext, memory: KeysAndValues
    ) -> Attended[KeysAndValues]:
        ((begin, first, _),) = passage.spans
        projected = self.qkv(inputs.normalized[:, begin:])

        # Entries are kept for long, and scales go up to 100: the 8 bits of bfloat16 would not
        # separate their scores.
        with torch.autocast(projected.device.type, enabled=False):
            exact = projected.to(self.log_scale.dtype)
            # [B, heads, positions, d_head] each
            q, k, v = exact.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            # Cached positions have no queries.
            q = q[:, :, first - begin :]
            q = F.normalize(q, dim=-1) * self.scales()[:, None, None]
            k = F.normalize(k, dim=-1)

            bias = self.distance(q.shape[2], k.shape[2])
            scores = q @ k.transpose(2, 3) + bias
            weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
            local = weights @ v
            read = self._with_memory(q, local, passage, memory)
        hidden = self.out(read.transpose(1, 2).flatten(2))

        if passage.ends_segment:
            segment_start = passage.cached - passage.place - begin
            memory = KeysAndValues(
                self._append(memory.keys, k[:, :, segment_start:]),
                self._append(memory.values, v[:, :, segment_start:]),
            )
        return Attended(hidden, memory)

    def _append(self, entries: Tensor, new: Tensor) -> Tensor:
        """The latest N of old and new entries, [B, heads, N, d_head]."""
        result = torch.cat((entries, new.detach()), 2)
        return result[:, :, max(0, result.shape[2] - self.max_entries) :]

    def _with_memory(
        self, q: Tensor, local: Tensor, passage: SegmentContext, memory: KeysAndValues
    ) -> Tensor:
        """Mix `local` [B, heads, n, d_head] with what is read from memory, weighted by the gate;
        queries that see no entry keep `local`.
        """
        keys = memory.keys.to(q.dtype)
        values = memory.values.to(q.dtype)
        retrieved: Retrieved = self.search(q, keys, values, passage.place, passage.document_offset)

        has_entry = retrieved.scores.isfinite().any(-1, keepdim=True)
        gate_of_head = self.gates()[:, None, None]
        gate = gate_of_head * has_entry
        return gate * retrieved.read + (1 - gate) * local
