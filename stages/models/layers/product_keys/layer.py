"""Product-key memory in the feed-forward place of a block."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.layers.config import AttentionConfig
from stages.models.layers.product_keys.norm import SharedBatchNorm
from stages.models.layers.product_keys.search import best_slots
from stages.models.layers.product_keys.settings import ProductKeysSettings
from stages.models.layers.sublayer import Apart, FeedForward, LearnsApart


class Found(NamedTuple):
    """Read-outs of each head and position."""

    slots: Tensor
    """int64 [B, L, heads, k]."""
    weights: Tensor
    """They add up to 1 for each head, [B, L, heads, k]."""


class Lookup(nn.Module):
    """Inputs [B, L, d] -> slots and how much they weigh; in the weights' own precision (float32), with autocast off."""

    def __init__(self, config: AttentionConfig, settings: ProductKeysSettings) -> None:
        super().__init__()
        self.heads, self.neighbors, width = settings.heads, settings.neighbors, settings.queries_of(config.width)
        self.query = nn.Linear(config.width, settings.heads * width)
        self.norm = SharedBatchNorm(settings.heads * width) if settings.query_norm == "batch" else nn.LayerNorm(width)
        self.keys = nn.Parameter(torch.empty(2, settings.heads, settings.sub_keys, width // 2))

    def initialize(self) -> None:
        """Keys are as long as what a normalized query asks of each of them is wide."""
        nn.init.xavier_uniform_(self.query.weight)
        nn.init.zeros_(self.query.bias)
        nn.init.uniform_(self.keys, -(self.keys.shape[3] ** -0.5), self.keys.shape[3] ** -0.5)

    def forward(self, x: Tensor) -> Found:
        """[B, L, d]."""
        with torch.autocast(x.device.type, enabled=False):
            queries = self._normalized(self.query(x.to(self.keys.dtype)).flatten(0, 1))
            first, second = queries.unflatten(2, (2, -1)).permute(2, 1, 0, 3) @ self.keys.transpose(2, 3)
            scores, slots = best_slots(first, second, self.neighbors)
            by_position = (part.transpose(0, 1).unflatten(0, x.shape[:2]) for part in (slots, scores.softmax(-1)))
            return Found(*by_position)

    def _normalized(self, queries: Tensor) -> Tensor:
        """[B·L, heads · d_q] -> [B·L, heads, d_q]."""
        if isinstance(self.norm, nn.LayerNorm):
            by_head: Tensor = self.norm(queries.unflatten(1, (self.heads, -1)))
            return by_head
        over_batch: Tensor = self.norm(queries)
        return over_batch.unflatten(1, (self.heads, -1))


class ProductKeys(FeedForward, LearnsApart):
    """Sums the values of the slots that the heads have found, as they weigh.

    Source: Lample et al. 2019 (arXiv:1907.05242), section 3.
    """

    def __init__(self, config: AttentionConfig, settings: ProductKeysSettings) -> None:
        super().__init__()
        self.lookup = Lookup(config, settings)
        self.values = nn.Parameter(torch.empty(settings.slots, config.width))
        self.value_lr = settings.value_lr

    def initialize(self, blocks: int) -> None:
        self.lookup.initialize()
        nn.init.normal_(self.values, std=self.values.shape[1] ** -0.5)

    def apart(self) -> Apart:
        """The values: each is read by few positions, so a small rate, or one that falls, would not move them."""
        return Apart([self.values], self.value_lr)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        slots, weights = (part.flatten(0, 1).flatten(1) for part in self.lookup(x))
        with torch.autocast(x.device.type, enabled=False):
            read = F.embedding_bag(slots, self.values, per_sample_weights=weights, mode="sum")
        return read.view(*x.shape)
