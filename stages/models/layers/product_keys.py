"""Product-key memory as the feed-forward layer of a block, and Memory+, whose blocks share the
values.
"""

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch import distributed as ranks

from stages.models.layers.memory_settings import MemoryPlusSettings, ProductKeysSettings
from stages.models.layers.settings import AttentionConfig
from stages.models.layers.sublayer import (
    FeedForward,
    HasSeparateParameters,
    SeparateParameters,
    SharesWeights,
)


class SharedBatchNorm(nn.BatchNorm1d):
    """Batch norm of [n, d], with mean and variance over the rows of all processes in training.

    All processes must call it, with the same number of rows. Their running means and variances stay
    equal to the bit. With a single process it is `BatchNorm1d`. Torch's `SyncBatchNorm` works on
    GPUs only.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Inputs [rows, d], normalized over the rows of all processes."""
        is_shared = ranks.is_initialized() and ranks.get_world_size() > 1
        if not (self.training and is_shared):
            return super().forward(input)

        # All processes have batches of one size.
        num_rows = len(input) * ranks.get_world_size()
        mean = _Sum.apply(input.sum(0)) / num_rows
        # Two passes: E[x²] - E[x]² would lose the digits of a variance that is small relative to
        # the mean.
        centred = input - mean
        variance = _Sum.apply(centred.square().sum(0)) / num_rows
        self._follow(mean.detach(), variance.detach(), num_rows)
        return centred * (variance + self.eps).rsqrt() * self.weight + self.bias

    def _follow(self, mean: Tensor, variance: Tensor, num_rows: int) -> None:
        """Move the running statistics towards those of a batch."""
        momentum = cast(float, self.momentum)
        running = (self.running_mean, self.running_var, self.num_batches_tracked)
        running_mean, running_variance, num_batches = cast(tuple[Tensor, Tensor, Tensor], running)

        unbiased = variance * (num_rows / (num_rows - 1))
        running_mean.lerp_(mean, momentum)
        running_variance.lerp_(unbiased, momentum)
        num_batches.add_(1)


class _Sum(torch.autograd.Function):
    """Sum of a tensor over all processes; the loss of each depends on it, so gradients are summed
    too.
    """

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        """Sum of `part`, of any shape, over the processes."""
        total = part.clone(memory_format=torch.contiguous_format)
        ranks.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> Tensor:
        """Gradient of the own part, of the same shape."""
        return _Sum.forward(ctx, grad_total)


class BestSlots(NamedTuple):
    """The k best slots of a query, the best first."""

    scores: Float[Tensor, "*queries k"]
    slots: Int64[Tensor, "*queries k"]
    """Slot a·n + b is the pair of key a of the first half and key b of the second."""


def best_slots(
    first: Float[Tensor, "*queries n"], second: Float[Tensor, "*queries n"], k: int
) -> BestSlots:
    """Exact search for the k slots with the largest first_a + second_b; only their scores have
    gradients.

    Both keys of such a slot are among the k best of their half. The pair of the i-th and the j-th
    best (from 1) is no better than i·j - 1 other pairs. So only pairs with i·j <= k are compared,
    about k log k of them.

    Args:
        k: number of slots, at most n.

    The best are 5 + 2 (slot 1·3 + 0) and 5 + 1 (slot 1·3 + 2):

    >>> best = best_slots(torch.tensor([0.0, 5.0, 1.0]), torch.tensor([2.0, 0.0, 1.0]), 2)
    >>> best.scores.tolist(), best.slots.tolist()
    ([7.0, 6.0], [3, 5])

    Source: Lample et al. 2019 (arXiv:1907.05242), section 3.2.
    """
    with torch.no_grad():
        # [*queries, k]: the best of each half
        first_scores, first_keys = first.topk(k)
        second_scores, second_keys = second.topk(k)

        # the pairs of ranks that may be among the k best
        first_ranks, second_ranks = _pairs(k)
        first_ranks = first_ranks.to(first.device)
        second_ranks = second_ranks.to(first.device)
        pair_scores = first_scores[..., first_ranks] + second_scores[..., second_ranks]
        best = pair_scores.topk(k).indices

        first_keys = first_keys[..., first_ranks].gather(-1, best)
        second_keys = second_keys[..., second_ranks].gather(-1, best)

    # The scores are gathered again, with gradients.
    scores = first.gather(-1, first_keys) + second.gather(-1, second_keys)
    keys_per_half = first.shape[-1]
    slots = first_keys * keys_per_half + second_keys
    return BestSlots(scores, slots)


@cache
def _pairs(k: int) -> tuple[Tensor, Tensor]:
    """Ranks i and j, from 0, with (i + 1)(j + 1) <= k."""
    pairs: list[tuple[int, int]] = []
    for i in range(k):
        pairs += [(i, j) for j in range(k // (i + 1))]
    ranks = torch.tensor(pairs)
    return ranks[:, 0], ranks[:, 1]


class TopKeys(NamedTuple):
    """Slots that each head found at each position, and their weights."""

    slots: Tensor
    """int64 [B, L, heads, k]."""
    weights: Tensor
    """[B, L, heads, k]; the weights of a head sum to 1."""


class Lookup(nn.Module):
    """Inputs [B, L, d] -> slots and their weights; in the parameters' precision (float32), without
    autocast.
    """

    def __init__(self, config: AttentionConfig, settings: ProductKeysSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.neighbors = settings.neighbors
        width = settings.queries_of(config.width)
        self.query = nn.Linear(config.width, settings.heads * width)
        self.norm: nn.Module = nn.LayerNorm(width)
        if settings.query_norm == "batch":
            self.norm = SharedBatchNorm(settings.heads * width)
        self.keys = nn.Parameter(torch.empty(2, settings.heads, settings.sub_keys, width // 2))

    def initialize(self) -> None:
        """Draw queries by Xavier, and keys uniformly in ±1/sqrt(width of a key)."""
        nn.init.xavier_uniform_(self.query.weight)
        nn.init.zeros_(self.query.bias)
        bound = self.keys.shape[3] ** -0.5
        nn.init.uniform_(self.keys, -bound, bound)

    def forward(self, x: Tensor) -> TopKeys:
        """Find the best slots for inputs [B, L, d]: [B, L, heads, k] slots and weights."""
        batch_shape = x.shape[:2]
        with torch.autocast(x.device.type, enabled=False):
            queries: Tensor = self.query(x.to(self.keys.dtype))
            queries = queries.flatten(0, 1)  # [B · L, heads · width]
            # A batch norm is of each dimension, over all queries of a batch; a layer norm over the
            # dimensions of one query.
            if isinstance(self.norm, nn.BatchNorm1d):
                queries = self.norm(queries)
            queries = queries.unflatten(1, (self.heads, -1))
            if isinstance(self.norm, nn.LayerNorm):
                queries = self.norm(queries)

            # [2, heads, B · L, width of a key], for the keys of each half.
            halves = queries.unflatten(2, (2, -1)).permute(2, 1, 0, 3)
            first, second = halves @ self.keys.transpose(2, 3)

            # [heads, B · L, k] each
            scores, slots = best_slots(first, second, self.neighbors)
            weights = scores.softmax(-1)

        slots_of_position = slots.transpose(0, 1).unflatten(0, batch_shape)
        weights_of_position = weights.transpose(0, 1).unflatten(0, batch_shape)
        return TopKeys(slots_of_position, weights_of_position)


def read_slots(keys: TopKeys, values: Float[Tensor, "slots d"]) -> Float[Tensor, "b n d"]:
    """Weighted sum of the values of the slots that all heads found.

    One head at one position found slots 2 and 0, with weights 3/4 and 1/4; the values of the slots
    are 10, 20 and 30:

    >>> keys = TopKeys(torch.tensor([[[[2, 0]]]]), torch.tensor([[[[0.75, 0.25]]]]))
    >>> read_slots(keys, torch.tensor([[10.0], [20.0], [30.0]])).flatten()
    tensor([25.])
    """
    # All heads of a position are one bag.
    slots = keys.slots.flatten(0, 1).flatten(1)
    weights = keys.weights.flatten(0, 1).flatten(1)
    with torch.autocast(values.device.type, enabled=False):
        # Values are summed while they are gathered, so rows [B·L, heads · k, d] never exist.
        read = F.embedding_bag(slots, values, per_sample_weights=weights, mode="sum")
    return read.view(*keys.slots.shape[:2], values.shape[1])


class HasSlots(ABC):
    """Interface of a layer that looks up slots, and reads their values."""

    lookup: Lookup

    @property
    @abstractmethod
    def table(self) -> nn.Parameter:
        """Values of the slots, [slots, d]; layers may share them."""


class ProductKeys(FeedForward, HasSeparateParameters, HasSlots):
    """Weighted sum of the values of the slots that the heads find.

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

    @property
    def table(self) -> nn.Parameter:
        return self.values

    def separate_parameters(self) -> SeparateParameters:
        """The values: few positions read each of them, so a small or falling learning rate would
        not move them.
        """
        return SeparateParameters([self.values], self.value_lr)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        return read_slots(self.lookup(x), self.values)


class MemoryPlus(FeedForward, HasSeparateParameters, SharesWeights, HasSlots):
    """(y ⊙ SiLU(x W_1)) W_2, where y is the heads' weighted sum of values; all blocks share one
    table of these.

    Source: Berges et al. 2024 (arXiv:2412.09764), section 3.
    """

    def __init__(self, config: AttentionConfig, settings: MemoryPlusSettings) -> None:
        super().__init__()
        width = config.width
        self.lookup = Lookup(config, settings)
        self.values: nn.Parameter | None = nn.Parameter(
            self.lookup.keys.new_empty(settings.slots, width)
        )
        self.gate = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.value_lr = settings.value_lr
        # A module in a tuple is not registered as a submodule, so its values are saved and trained
        # once.
        self._owner: tuple[MemoryPlus, ...] = (self,)

    def share(self, first: "MemoryPlus") -> None:
        self.values = None
        self._owner = (first,)

    @property
    def table(self) -> nn.Parameter:
        values = self._owner[0].values
        assert values is not None, "the first layer has them"
        return values

    def initialize(self, blocks: int) -> None:
        self.lookup.initialize()
        for weight in (self.values, self.gate.weight, self.out.weight):
            if weight is not None:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    def separate_parameters(self) -> SeparateParameters:
        """The values, if this layer owns them."""
        return SeparateParameters([] if self.values is None else [self.values], self.value_lr)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        return self.out(read_slots(self.lookup(x), self.table) * F.silu(self.gate(x)))
