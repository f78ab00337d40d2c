"""Attention to earlier positions, and to a continuous signal that was fitted to all positions
before those.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.models.layers.memory_settings import BINS, InfinitySettings, Signal
from stages.models.layers.relative import RelativeAttention
from stages.models.layers.settings import AttentionConfig, RelativeSettings
from stages.models.layers.signal_basis import Basis, Fit, even_places, masses, sticky_places
from stages.models.layers.sublayer import (
    Attended,
    SegmentContext,
    StreamAttention,
    StreamInputs,
    initialize,
)

SMALLEST_VARIANCE = 1e-6


class Readout(NamedTuple):
    """Outputs of n queries that read a signal, and the normal density with which each head read it."""

    hidden: Float[Tensor, "B n d"]
    """0 where a query does not see the signal."""
    mean: Float[Tensor, "B heads n"]
    variance: Float[Tensor, "B heads n"]


class SignalReader(nn.Module):
    """z = E[V ψ(t)] for each head; t is normal with mean σ(a·s) and variance softplus(b·s), where s
    = K q.

    Keys K and values V are projections of the coefficients of the signal. All heads share a and b.

    Source: Martins et al. 2022 (arXiv:2109.00301), equations 8 to 12.
    """

    def __init__(self, width: int, heads: int, basis: Basis) -> None:
        super().__init__()
        self.heads = heads
        self.basis = basis
        self.focus = nn.Linear(basis.number, 2, bias=False)
        self.keys = nn.Linear(width, width, bias=False)
        self.values = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(
        self,
        q: Float[Tensor, "B heads n d_head"],
        signal: Float[Tensor, "B N d"],
        is_visible: Bool[Tensor, "B n"],
    ) -> Readout:
        """Read the signal; `is_visible` marks the queries that may see it, and the others get 0."""
        # a·(K q) is (aᵀK)·q, so the scores of queries and functions are never computed.
        focus = self.focus(signal.transpose(1, 2)).transpose(1, 2)
        focus_keys = self.keys(focus).unflatten(2, (self.heads, -1))  # [B, 2, heads, d_head]
        scale = q.shape[3] ** -0.5
        place, spread = torch.einsum("bhne,bche->cbhn", q, focus_keys) * scale
        mean = place.sigmoid()
        # Softplus may underflow to 0, but the divergence takes the logarithm of the variance.
        variance = F.softplus(spread).clamp(min=SMALLEST_VARIANCE)

        values = self.values(signal).unflatten(2, (self.heads, -1)).transpose(1, 2)
        weights = self.basis.expected(mean, variance)  # [B, heads, n, N]
        read = weights @ values  # [B, heads, n, d_head]
        hidden = self.out(read.transpose(1, 2).flatten(2))
        return Readout(hidden * is_visible[..., None], mean, variance)


class Gate(nn.Module):
    """σ(conv(x)) ⊙ x, with a convolution of width 3 and zero padding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.taps = nn.Linear(3 * width, width)

    def initialize(self) -> None:
        """Initialize the weights so that the gate is half open on average."""
        nn.init.xavier_uniform_(self.taps.weight)
        nn.init.zeros_(self.taps.bias)

    def forward(self, x: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        """[B, n, d] -> [B, n, d]; n may be 0."""
        padded = F.pad(x, (0, 0, 1, 1))
        gate: Tensor = self.taps(torch.cat((padded[:, :-2], padded[:, 1:-1], padded[:, 2:]), 2))
        return gate.sigmoid() * x


class SignalWriter(nn.Module):
    """B = G [X̄(t_1) … X̄(t_S); gated new vectors]: samples of the old signal X̄ on [0, τ], then
    the new vectors.

    A zero signal is empty: then the new vectors take all of [0, 1].

    Source: Martins et al. 2022 (arXiv:2109.00301), sections 3.1 and 3.2.
    """

    def __init__(self, width: int, basis: Basis, settings: InfinitySettings) -> None:
        super().__init__()
        self.basis = basis
        self.samples = settings.samples
        self.ridge = settings.ridge
        self.contraction = settings.contraction
        self.gate = Gate(width)

    def forward(
        self,
        signal: Float[Tensor, "B N d"],
        new: Float[Tensor, "B n d"],
        weights: Tensor | None = None,
    ) -> Float[Tensor, "B N d"]:
        """Args:
        new: the latest vectors, the oldest first; if there are none, the signal does not change.
        weights: attention that each bin of the old signal received, [B, D]; None: samples are
        evenly spaced.
        """
        gated = self.gate(new)
        number = new.shape[1]
        if not number:
            # Adds 0, but data-parallel wrappers need the gate in every step's graph.
            return signal + gated.sum()

        places = (
            even_places(self.samples, signal)
            if weights is None
            else sticky_places(weights, self.samples)
        )
        fit = Fit(self.basis, self.ridge, self.samples, number, self.contraction)
        matrix = fit.matrix(signal)
        old = matrix[:, : self.samples] @ (self.basis.at(places) @ signal)
        joined = old + matrix[:, self.samples :] @ gated

        # An empty signal has no samples: the new vectors take all of [0, 1].
        first = Fit(self.basis, self.ridge, 0, number, 0.0).matrix(signal) @ gated
        is_empty = ~signal.any(2).any(1)[:, None, None]
        return torch.where(is_empty, first, joined)


class InfinityAttention(StreamAttention[Signal]):
    """Relative attention plus attention to a signal.

    Inputs that leave the cache at the end of a segment enter the signal only when the next segment
    begins. So the loss of that segment reaches the gate that they pass.

    Source: Martins et al. 2022 (∞-former, arXiv:2109.00301).
    """

    def __init__(self, config: AttentionConfig, settings: InfinitySettings) -> None:
        super().__init__()
        basis = Basis(settings.basis, settings.widths)
        self.relative = RelativeAttention(config, RelativeSettings())
        self.reader = SignalReader(config.width, config.heads, basis)
        self.writer = SignalWriter(config.width, basis, settings)
        self.sticky = settings.sticky
        self.cached = config.lengths.cached
        self.length = getattr(config, "segment_length", None) or 1
        self.variance = settings.deviation**2

        # Divided by the number of layers, so that the total weight of the divergence does not depend on
        # depth.
        num_layers = len(config.blocks_with("attention"))
        self.weight = settings.kl / num_layers

    def initialize(self, blocks: int) -> None:
        self.relative.initialize(blocks)
        initialize(self.reader, self.reader.out, blocks)
        self.writer.gate.initialize()

    def begin(self, x: Tensor) -> Signal:
        rows = len(x)
        width = x.shape[2]
        # Autocast may lower the precision of adaptive embeddings.
        x = x.to(self.reader.out.weight.dtype)
        signal = x.new_zeros(rows, self.reader.basis.number, width)
        queue = x.new_empty(rows, 0, width)
        return Signal(signal, queue, x.new_zeros(rows, BINS) if self.sticky else None)

    def forward(
        self, inputs: StreamInputs, passage: SegmentContext, memory: Signal
    ) -> Attended[Signal]:
        projected = self.relative.project(inputs.normalized, passage)
        local = self.relative.read(projected, passage)
        with torch.autocast(local.device.type, enabled=False):
            signal = self._written(passage, memory)
            visible = self._visible(signal, passage)
            queries = projected.queries.transpose(0, 1).to(signal.dtype)
            readout: Readout = self.reader(queries, signal, visible)
            loss = self.divergence(readout, visible) if self.training else None
            after = self._after(inputs, passage, memory, signal.detach(), readout)
        return Attended(local + readout.hidden, after, loss)

    def _written(self, passage: SegmentContext, memory: Signal) -> Tensor:
        """Coefficients that the current segment reads, [B, N, d]; at its start, inputs that left
        the cache enter.
        """
        signal = memory.coefficients
        queue = memory.left
        if passage.place:
            return signal
        if passage.document_offset is not None:
            # What is from an earlier document than the segment's first position becomes 0. A signal
            # belongs to the document of the first position of the previous segment.
            offset = passage.document_offset[:, :1, None]
            ages = self.cached + torch.arange(queue.shape[1], 0, -1, device=queue.device)
            signal = signal * (offset >= self.length)
            queue = queue * (offset >= ages[:, None])
        return self.writer(signal, queue, memory.attention)

    def _visible(self, signal: Tensor, passage: SegmentContext) -> Tensor:
        """Whether each query sees the signal, bool [B, n]: if its document is that of its segment's
        first position.
        """
        has_signal = signal.detach().any(2).any(1)[:, None]
        offset = passage.document_offset
        if offset is None:
            return has_signal.expand(-1, passage.spans[0].stop - passage.cached)
        place = passage.place + torch.arange(offset.shape[1], device=signal.device)
        return has_signal & (offset >= place)

    def divergence(self, readout: Readout, visible: Tensor) -> Tensor:
        """w KL(N(μ, σ²) ‖ N(μ, σ_0²)), averaged over layers, rows, heads and positions; queries
        outside `visible` add 0.

        Source: Martins et al. 2022 (arXiv:2109.00301), equation 18, with the logarithm of the ratio
        of variances.
        """
        ratio = readout.variance / self.variance
        divergence = (ratio - ratio.log() - 1) / 2 * visible[:, None]
        rows, heads, _ = divergence.shape
        return divergence.sum() * (self.weight / (rows * heads * self.length))

    def _after(
        self,
        inputs: StreamInputs,
        passage: SegmentContext,
        memory: Signal,
        signal: Tensor,
        readout: Readout,
    ) -> Signal:
        """Compute the memory after a passage."""
        queue = memory.left
        if passage.ends_segment:
            leaving = max(0, inputs.raw.shape[1] - self.cached)
            queue = inputs.raw[:, :leaving].detach().to(signal.dtype)
        if not self.sticky:
            return Signal(signal, queue)

        # Attention is counted over one segment.
        before = memory.attention if passage.place else torch.zeros_like(memory.attention)
        attention = masses(readout.mean.detach(), readout.variance.detach(), BINS)
        return Signal(signal, queue, before + attention)
