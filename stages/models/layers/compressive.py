"""Attention to the segment, to cached inputs, and to slots of compressed older inputs (Compressive
Transformer).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.layers.dropout import Dropout
from stages.models.layers.memory_settings import CompressiveSettings, Slots
from stages.models.layers.relative import RelativeAttention
from stages.models.layers.settings import AttentionConfig, RelativeSettings
from stages.models.layers.sinusoids import sinusoids
from stages.models.layers.sublayer import (
    Attended,
    HasSeparateParameters,
    SegmentContext,
    SeparateParameters,
    Span,
    StreamAttention,
    StreamInputs,
)

POOLS: dict[str, Callable[[Tensor, int], Tensor]] = {"mean": torch.mean, "max": torch.amax}


class Compression(nn.Module):
    """Makes one slot of c inputs by their mean, their maximum (in each dimension), or a convolution
    (`conv`).

    The stride of the convolution equals its kernel size; it is initialized to the mean.
    """

    def __init__(self, name: str, width: int, rate: int) -> None:
        super().__init__()
        self.name = name
        self.rate = rate
        self.taps = nn.Linear(rate * width, width) if name == "conv" else None

    @torch.no_grad()
    def initialize(self) -> None:
        """Set each tap to the identity divided by c."""
        if self.taps is None:
            return
        identity = torch.eye(self.taps.out_features)
        self.taps.weight.copy_(identity.repeat(1, self.rate) / self.rate)
        self.taps.bias.zero_()

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B slots d"]:
        """[B, n, d] -> [B, n / c, d]; n must be a multiple of c.

        >>> convolution = Compression("conv", 1, 2)
        >>> convolution.initialize()
        >>> convolution(torch.tensor([[[1.0], [3.0], [5.0], [9.0]]])).flatten().tolist()
        [2.0, 7.0]
        """
        windows = x.unflatten(1, (-1, self.rate))
        if self.taps is None:
            return POOLS[self.name](windows, 2)
        # Windows do not overlap, so the convolution is one product of c concatenated inputs.
        return self.taps(windows.flatten(2))


class CompressiveAttention(StreamAttention[Slots], HasSeparateParameters):
    """Relative attention with slots before the cached inputs; a slot counts as one position in
    distances.

    At the end of a segment, cached inputs that are dropped are compressed to slots. The compression
    is trained only by `reconstruction_loss`: attention to the slots should read what it reads from
    the inputs.

    Source: Rae et al. 2020 (arXiv:1911.05507), section 3.
    """

    def __init__(self, config: AttentionConfig, settings: CompressiveSettings) -> None:
        super().__init__()
        self.relative = RelativeAttention(config, RelativeSettings())
        self.compress = Compression(settings.compression, config.width, settings.rate)
        self.max_slots = settings.long_length
        self.cached = config.lengths.cached
        self.dropout = Dropout(config.dropout)
        self.layers = len(config.blocks_with("attention"))

    def initialize(self, blocks: int) -> None:
        self.relative.initialize(blocks)
        self.compress.initialize()

    def separate_parameters(self) -> SeparateParameters:
        """Parameters of the compression, clipped separately: their large loss must not scale down
        other gradients.
        """
        return SeparateParameters(list(self.compress.parameters()))

    def begin(self, x: Tensor) -> Slots:
        return Slots(x.new_empty(len(x), 0, x.shape[2], dtype=self._exact))

    def forward(
        self, inputs: StreamInputs, passage: SegmentContext, memory: Slots
    ) -> Attended[Slots]:
        x, passage_with_slots = self.before(inputs, passage, memory)
        hidden = self.relative.attend(x, passage_with_slots)
        if not passage.ends_segment:
            return Attended(hidden, memory, self._unused() if self.training else None)

        dropped = self.dropped(inputs)
        new = self.compressed(dropped)
        slots = torch.cat((memory.slots, new.detach()), 1)
        latest = slots[:, max(0, slots.shape[1] - self.max_slots) :]

        loss = None
        if self.training:
            # Divided by the number of layers, so that the total weight of this loss does not depend
            # on depth.
            loss = self.reconstruction_loss(inputs, passage, dropped, new) / self.layers
        return Attended(hidden, Slots(latest), loss)

    def before(
        self, inputs: StreamInputs, passage: SegmentContext, memory: Slots
    ) -> tuple[Tensor, SegmentContext]:
        """Slots and inputs, normalized, [B, s + m + n, d], and the passage in which slots count as
        cached.
        """
        ((begin, first, stop),) = passage.spans
        slots = memory.slots.to(inputs.raw.dtype)
        normalized_slots = inputs.norm(slots)
        x = torch.cat((normalized_slots, inputs.normalized[:, begin:]), 1)

        # Indices counted from the first cached input; now they count from the first slot.
        shift = slots.shape[1] - begin
        span = Span(0, first + shift, stop + shift)
        cached = passage.cached + shift

        # Slots are farther back than cached inputs.
        distances = passage.distances
        if len(distances) <= span.stop:
            num_distances = span.stop + 1
            # Distances fall from the farthest position to 0.
            vectors = sinusoids(num_distances, distances.shape[1], distances.device).flip(0)
            distances = self.dropout(vectors.to(distances.dtype))
        return x, passage._replace(cached=cached, spans=[span], distances=distances)

    def looked(
        self, inputs: StreamInputs, passage: SegmentContext, memory: Slots
    ) -> tuple[Tensor, int]:
        """Attention weights of each position on slots, cached inputs and its segment, and the
        number of slots.

        Returns: weights [heads, B, n, s + m' + n], where m' is the number of visible cached inputs;
        s.
        """
        (weights,) = self.relative.weights(*self.before(inputs, passage, memory))
        return weights, memory.slots.shape[1]

    def dropped(self, inputs: StreamInputs) -> Tensor:
        """Raw inputs that leave the cache at the end of the segment, detached, in full precision,
        [B, r, d].
        """
        number = max(0, inputs.raw.shape[1] - self.cached)
        return inputs.raw[:, :number].detach().to(self._exact)

    @property
    def _exact(self) -> torch.dtype:
        """Dtype of the weights; under autocast, inputs from an adaptive vocabulary may have less
        precision.
        """
        return self.relative.qkv.weight.dtype

    def compressed(self, dropped: Tensor) -> Tensor:
        """[B, r, d] -> [B, r / c, d], in full precision because slots are kept for long."""
        with torch.autocast(dropped.device.type, enabled=False):
            return self.compress(dropped)

    def reconstruction_loss(
        self, inputs: StreamInputs, passage: SegmentContext, dropped: Tensor, new: Tensor
    ) -> Tensor:
        """Loss of information in the slots: mean squared difference of attention outputs, by
        content only.

        The segment's positions attend to the slots, and to the inputs from which these were made.
        The mean is over positions and dimensions. Only `new` gets a gradient. The loss is 0 if
        nothing was dropped.

        Args:
            dropped: inputs that leave the cache, [B, r, d].
            new: their slots, [B, r / c, d].
        Source: Rae et al. 2020 (arXiv:1911.05507), section 3.2, "attention-reconstruction".
        """
        if not dropped.shape[1]:
            return self._unused()
        with torch.autocast(dropped.device.type, enabled=False):
            segment = inputs.normalized[:, passage.cached - passage.place :]
            queries = segment.detach().to(dropped.dtype)
            with torch.no_grad():
                target = self._read(queries, self._normalized(dropped, inputs.norm))
            read = self._read(queries, self._normalized(new, inputs.norm))
            return F.mse_loss(read, target)

    def _normalized(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Apply the block's layer norm, without gradients of its weights."""
        return F.layer_norm(
            x, norm.normalized_shape, norm.weight.detach(), norm.bias.detach(), norm.eps
        )

    def _read(self, queries: Tensor, x: Tensor) -> Tensor:
        """Attend from queries [B, L, d] to x [B, r, d] by content, [B, heads, L, d_head]; weights
        get no gradient.
        """
        query_weight, key_weight, value_weight = self.relative.qkv.weight.detach().chunk(3)
        q = self._heads_first(F.linear(queries, query_weight))
        k = self._heads_first(F.linear(x, key_weight))
        v = self._heads_first(F.linear(x, value_weight))
        return F.scaled_dot_product_attention(q, k, v)

    def _heads_first(self, x: Tensor) -> Tensor:
        """[B, n, d] -> [B, heads, n, d_head]."""
        return x.unflatten(2, (self.relative.heads, -1)).transpose(1, 2)

    def _unused(self) -> Tensor:
        """0 as a function of all weights of the compression: data-parallel wrappers need each of
        them in every step.
        """
        nothing = self.relative.qkv.weight.new_zeros(())
        return sum((0 * parameter.sum() for parameter in self.compress.parameters()), nothing)
