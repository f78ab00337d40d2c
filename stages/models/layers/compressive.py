"""Attention to slots that dropped positions were compressed to, to cached ones, and to those of the segment."""

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
from stages.models.layers.sublayer import Apart, Attended, LearnsApart, Passage, Span, StreamAttention, StreamInputs

POOLS: dict[str, Callable[[Tensor, int], Tensor]] = {"mean": torch.mean, "max": torch.amax}


class Convolution(nn.Module):
    """A convolution with as long a stride as kernel; it begins as the mean."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        self.rate = rate
        self.taps = nn.Linear(rate * width, width)

    def initialize(self) -> None:
        """Each tap is the identity / c."""
        with torch.no_grad():
            width = self.taps.out_features
            self.taps.weight.copy_(torch.eye(width).repeat(1, self.rate) / self.rate)
            self.taps.bias.zero_()

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B slots d"]:
        """[B, n, d], n a multiple of c -> [B, n / c, d].

        >>> convolution = Convolution(1, 2)
        >>> convolution.initialize()
        >>> convolution(torch.tensor([[[1.0], [3.0], [5.0], [9.0]]])).flatten().tolist()
        [2.0, 7.0]
        """
        # One product, of c inputs side by side: a stride as long as the kernel makes no overlap to share.
        return self.taps(x.unflatten(1, (-1, self.rate)).flatten(2))


class Pooling(nn.Module):
    """The mean of c inputs, or the largest of each dimension."""

    def __init__(self, pool: Callable[[Tensor, int], Tensor], rate: int) -> None:
        super().__init__()
        self.pool, self.rate = pool, rate

    def initialize(self) -> None:
        """Nothing is learnt."""

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B slots d"]:
        """[B, n, d], n a multiple of c -> [B, n / c, d]."""
        return self.pool(x.unflatten(1, (-1, self.rate)), 2)


def compressor(name: str, width: int, rate: int) -> Convolution | Pooling:
    """The function that settings name."""
    if name == "conv":
        return Convolution(width, rate)
    return Pooling(POOLS[name], rate)


class CompressiveAttention(StreamAttention[Slots], LearnsApart):
    """Relative attention with slots before the cached inputs, the distance to a slot counted in slots.

    When a segment ends, cached inputs that are dropped become slots. What makes them
    learns to leave attention what it read (`reconstruction_loss`), and by nothing else.

    Source: Rae et al. 2020 (arXiv:1911.05507), section 3.
    """

    def __init__(self, config: AttentionConfig, settings: CompressiveSettings) -> None:
        super().__init__()
        self.relative = RelativeAttention(config, RelativeSettings())
        self.compress = compressor(settings.compression, config.width, settings.rate)
        self.most, self.cached = config.lengths.kept, config.lengths.cached
        self.dropout = Dropout(config.dropout)
        self.layers = len(config.blocks_with("attention"))

    def initialize(self, blocks: int) -> None:
        self.relative.initialize(blocks)
        self.compress.initialize()

    def apart(self) -> Apart:
        """Parameters of the compression, clipped by themselves: their large loss must not shorten the other
        gradients."""
        return Apart(list(self.compress.parameters()))

    def begin(self, x: Tensor) -> Slots:
        return Slots(x.new_empty(len(x), 0, x.shape[2], dtype=self._exact))

    def forward(self, inputs: StreamInputs, passage: Passage, memory: Slots) -> Attended[Slots]:
        hidden = self.relative.attend(*self.before(inputs, passage, memory))
        if not passage.ends_segment:
            return Attended(hidden, memory, self._unused() if self.training else None)
        left = self.dropped(inputs)
        new = self.compressed(left)
        slots = torch.cat((memory.slots, new.detach()), 1)
        # A share for each layer: the sum of them weighs the same in models of any depth.
        loss = self.reconstruction_loss(inputs, passage, left, new) / self.layers if self.training else None
        return Attended(hidden, Slots(slots[:, max(0, slots.shape[1] - self.most) :]), loss)

    def before(self, inputs: StreamInputs, passage: Passage, memory: Slots) -> tuple[Tensor, Passage]:
        """Slots and inputs, normalized, [B, s + m + n, d], and the passage with them counted as cached."""
        ((begin, first, stop),) = passage.spans
        slots = memory.slots.to(inputs.raw.dtype)
        x = torch.cat((inputs.norm(slots), inputs.normalized[:, begin:]), 1)
        # Positions counted from the first cached input, and count from the first slot now.
        more = slots.shape[1] - begin
        distances = self._distances(stop + more, passage)
        return x, passage._replace(
            cached=passage.cached + more, spans=[Span(0, first + more, stop + more)], distances=distances
        )

    def looked(self, inputs: StreamInputs, passage: Passage, memory: Slots) -> tuple[Tensor, int]:
        """How much each position attends to slots, cached inputs and its segment; and how many slots there are.

        Returns: [heads, B, n, s + m' + n], m' the cached inputs that are seen; s.
        """
        (weights,) = self.relative.weights(*self.before(inputs, passage, memory))
        return weights, memory.slots.shape[1]

    def _distances(self, longest: int, passage: Passage) -> Tensor:
        """Sinusoids of the passage's distances, or of more where slots lie farther back, [D + 1, d]."""
        if len(passage.distances) > longest:
            return passage.distances
        width, like = passage.distances.shape[1], passage.distances
        return self.dropout(sinusoids(longest + 1, width, like.device).flip(0).to(like.dtype))

    def dropped(self, inputs: StreamInputs) -> Tensor:
        """Raw inputs that are not cached any more when the segment has ended, constant and exact, [B, r, d]."""
        return inputs.raw[:, : max(0, inputs.raw.shape[1] - self.cached)].detach().to(self._exact)

    @property
    def _exact(self) -> torch.dtype:
        """Precision of the weights; inputs of an adaptive vocabulary may have less under autocast."""
        return self.relative.qkv.weight.dtype

    def compressed(self, left: Tensor) -> Tensor:
        """[B, r, d] -> [B, r / c, d], in full precision: slots are kept for long."""
        with torch.autocast(left.device.type, enabled=False):
            return self.compress(left)

    def reconstruction_loss(self, inputs: StreamInputs, passage: Passage, left: Tensor, new: Tensor) -> Tensor:
        """How much less attention, by content alone, can read of the slots than of what they were made of.

        The squared difference of what the segment's positions read of each, a mean over positions and dimensions. Only
        `new` has a gradient. Where nothing was dropped it is 0.

        Args:
            left, new: what was dropped, [B, r, d], and the slots that it became, [B, r / c, d].
        Source: Rae et al. 2020 (arXiv:1911.05507), section 3.2, "attention-reconstruction".
        """
        if not left.shape[1]:
            return self._unused()
        with torch.autocast(left.device.type, enabled=False):
            own = inputs.normalized[:, passage.cached - passage.place :].detach().to(left.dtype)
            with torch.no_grad():
                wanted = self._read(own, self._normalized(left, inputs.norm))
            return F.mse_loss(self._read(own, self._normalized(new, inputs.norm)), wanted)

    def _normalized(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Inputs normalized as the block does it, without gradient to its weights."""
        return F.layer_norm(x, norm.normalized_shape, norm.weight.detach(), norm.bias.detach(), norm.eps)

    def _read(self, own: Tensor, x: Tensor) -> Tensor:
        """Attend from own [B, L, d] to x [B, r, d] by content, [B, heads, L, d_head]; weights are constant."""
        q, k, v = (
            F.linear(part, weight).unflatten(2, (self.relative.heads, -1)).transpose(1, 2)
            for part, weight in zip((own, x, x), self.relative.qkv.weight.detach().chunk(3), strict=True)
        )
        return F.scaled_dot_product_attention(q, k, v)

    def _unused(self) -> Tensor:
        """0, of which all weights of what compresses are a part: data-parallel wrappers want each in every step."""
        nothing = self.relative.qkv.weight.new_zeros(())
        return sum((0 * parameter.sum() for parameter in self.compress.parameters()), nothing)
