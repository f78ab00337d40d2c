"""Attention to the positions before, and to what a search finds among the keys of many earlier ones."""

from math import log, log2

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.layers.config import AttentionConfig
from stages.models.layers.initialization import initialize
from stages.models.layers.memorizing.bucket_bias import BucketBias
from stages.models.layers.memorizing.search import Search
from stages.models.layers.memorizing.settings import KeysAndValues, MemorizingSettings
from stages.models.layers.sublayer import Attended, Passage, StreamAttention, StreamInputs

LARGEST_SCALE = 100.0
USUAL_LENGTH = 128
"""Inputs of a segment, where the model says nothing of them."""


class MemorizingAttention(StreamAttention[KeysAndValues]):
    """A gate a head between local attention and attention to the best k of N entries.

    Queries and keys have length 1, and a learned scale a head. Keys and values of a segment are kept, as they are, when
    it has ended.

    Source: Wu et al. 2022 (arXiv:2203.08913), section 3; Henry et al. 2020 (QKNorm, arXiv:2010.04245) for the scale.
    """

    def __init__(self, config: AttentionConfig, settings: MemorizingSettings) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.most, self.by_document = settings.long_length, settings.scope == "document"
        self.length = getattr(config, "segment_length", None) or USUAL_LENGTH
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.log_scale = nn.Parameter(torch.empty(config.heads))
        self.gate = nn.Parameter(torch.empty(config.heads))
        self.distance = BucketBias(config.heads, settings.buckets, settings.longest_distance)
        self.search = Search(settings.neighbors)
        self.out = nn.Linear(config.width, config.width)

    def initialize(self, blocks: int) -> None:
        """Gates begin half open; scales as they must be for one of L random keys to stand out."""
        initialize(self, self.out, blocks)
        nn.init.constant_(self.log_scale, log(max(1.0, log2(max(2, self.length**2 - self.length)))))
        nn.init.zeros_(self.gate)
        nn.init.zeros_(self.distance.bias)

    def begin(self, x: Tensor) -> KeysAndValues:
        shape = (len(x), self.heads, 0, x.shape[2] // self.heads)
        empty = x.new_empty(shape, dtype=self.log_scale.dtype)
        return KeysAndValues(empty, empty)

    def gates(self) -> Tensor:
        """How much of a head's attention goes to memory, [heads]."""
        return self.gate.sigmoid()

    def scales(self) -> Tensor:
        """Factors of each head's queries, at most LARGEST_SCALE, [heads].

        The gradient passes the bound as if it were not there: a head beyond it can come back.
        """
        bounded = self.log_scale.clamp(max=log(LARGEST_SCALE))
        return (self.log_scale + (bounded - self.log_scale).detach()).exp()

    def forward(self, inputs: StreamInputs, passage: Passage, memory: KeysAndValues) -> Attended[KeysAndValues]:
        ((begin, first, _),) = passage.spans
        projected = self.qkv(inputs.normalized[:, begin:])
        with torch.autocast(projected.device.type, enabled=False):
            q, k, v = projected.to(self.log_scale.dtype).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            scale = self.scales()[:, None, None]
            q, k = F.normalize(q[:, :, first - begin :], dim=-1) * scale, F.normalize(k, dim=-1)
            read = self._with_memory(q, self._local(q, k, v), passage, memory)
        hidden = self.out(read.transpose(1, 2).flatten(2))
        if passage.ends_segment:
            own = passage.cached - passage.place - begin
            memory = KeysAndValues(*(self._kept(old, new[:, :, own:]) for old, new in zip(memory, (k, v), strict=True)))
        return Attended(hidden, memory)

    def _local(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to the positions of the segment up to each query's own, [B, heads, n, d_head]."""
        weights = (q @ k.transpose(2, 3) + self.distance(q.shape[2], k.shape[2])).softmax(-1)
        return F.dropout(weights, self.dropout, self.training) @ v

    def _with_memory(self, q: Tensor, local: Tensor, passage: Passage, memory: KeysAndValues) -> Tensor:
        """`local`, or, where a query may see an entry, its mean with what the memory gives, as the gate weighs them."""
        keys, values = (part.to(q.dtype) for part in memory)
        found = self.search(q, keys, values, passage.place, passage.document_offset if self.by_document else None)
        sees = found.scores.isfinite().any(-1, keepdim=True)
        gate = self.gates()[:, None, None] * sees
        return gate * found.read + (1 - gate) * local

    def _kept(self, old: Tensor, new: Tensor) -> Tensor:
        """The latest N entries, [B, heads, N, d_head]."""
        joined = torch.cat((old, new.detach()), 2)
        return joined[:, :, max(0, joined.shape[2] - self.most) :]
