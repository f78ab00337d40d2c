"""Attention to the positions before, and to a continuous signal that all earlier ones were fitted to."""

import torch
from torch import Tensor

from stages.models.layers.config import AttentionConfig
from stages.models.layers.infinity.basis import Basis
from stages.models.layers.infinity.reader import Look, SignalReader
from stages.models.layers.infinity.sampling import masses
from stages.models.layers.infinity.settings import BINS, InfinitySettings, Signal
from stages.models.layers.infinity.writer import SignalWriter
from stages.models.layers.initialization import initialize
from stages.models.layers.relative.layer import RelativeAttention
from stages.models.layers.relative.settings import RelativeSettings
from stages.models.layers.sublayer import Attended, Passage, StreamAttention, StreamInputs


class InfinityAttention(StreamAttention[Signal]):
    """Relative attention plus attention to a signal.

    Inputs that left the cache when a segment ended enter the signal only when the next segment begins: so that this
    segment's loss reaches the gate which they pass.

    Source: Martins et al. 2022 (∞-former, arXiv:2109.00301).
    """

    def __init__(self, config: AttentionConfig, settings: InfinitySettings) -> None:
        super().__init__()
        basis = Basis(settings.basis, settings.widths)
        self.relative = RelativeAttention(config, RelativeSettings())
        self.reader = SignalReader(config.width, config.heads, basis)
        self.writer = SignalWriter(config.width, basis, settings)
        self.sticky, self.by_document = settings.sticky, settings.scope == "document"
        self.cached, self.length = config.lengths.mem_length or 0, getattr(config, "segment_length", None) or 1
        self.variance, self.weight = settings.deviation**2, settings.kl / len(config.blocks_with("attention"))

    def initialize(self, blocks: int) -> None:
        self.relative.initialize(blocks)
        initialize(self.reader, self.reader.out, blocks)
        self.writer.gate.initialize()

    def begin(self, x: Tensor) -> Signal:
        rows, width = len(x), x.shape[2]
        x = x.to(self.reader.out.weight.dtype)  # an adaptive vocabulary's may have less precision under autocast
        signal, left = x.new_zeros(rows, self.reader.basis.number, width), x.new_empty(rows, 0, width)
        return Signal(signal, left, x.new_zeros(rows, BINS) if self.sticky else None)

    def forward(self, inputs: StreamInputs, passage: Passage, memory: Signal) -> Attended[Signal]:
        projected = self.relative.project(inputs.normalized, passage)
        local = self.relative.read(projected, passage)
        with torch.autocast(local.device.type, enabled=False):
            signal = self._written(passage, memory)
            seen = self._seen(signal, passage)
            look: Look = self.reader(projected.queries.transpose(0, 1).to(signal.dtype), signal, seen)
            loss = self.divergence(look, seen) if self.training else None
            after = self._after(inputs, passage, memory, signal.detach(), look)
        return Attended(local + look.hidden, after, loss)

    def _written(self, passage: Passage, memory: Signal) -> Tensor:
        """Coefficients that the segment under way reads, [B, N, d]: with what left the cache, if it begins."""
        signal, left = memory.coefficients, memory.left
        if passage.place:
            return signal
        if passage.document_offset is not None and self.by_document:
            signal, left = self._own(signal, left, passage.document_offset[:, :1, None])
        return self.writer(signal, left, memory.attention)

    def _own(self, signal: Tensor, left: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """The same, 0 where they are of an earlier document than the segment's first position.

        A signal is of the document of the first position of the segment before.

        Args:
            before: positions of its own document before the segment's first, int64 [B, 1, 1].
        """
        number = left.shape[1]
        ages = self.cached + torch.arange(number, 0, -1, device=left.device)
        return signal * (before >= self.length), left * (before >= ages[:, None])

    def _seen(self, signal: Tensor, passage: Passage) -> Tensor:
        """The queries that see the signal, bool [B, n]: those of the document of their segment's first position."""
        holds = signal.detach().any(2).any(1)[:, None]
        if passage.document_offset is None or not self.by_document:
            return holds.expand(-1, passage.spans[0].stop - passage.cached)
        place = passage.place + torch.arange(passage.document_offset.shape[1], device=signal.device)
        return holds & (passage.document_offset >= place)

    def divergence(self, look: Look, seen: Tensor) -> Tensor:
        """w KL(N(μ, σ²) ‖ N(μ, σ_0²)), a mean over layers, rows, heads and the segment's positions; 0 for unseen ones.

        Source: Martins et al. 2022 (arXiv:2109.00301), equation 18, with the logarithm of the ratio of variances.
        """
        ratio = look.variance / self.variance
        divergence = (ratio - ratio.log() - 1) / 2 * seen[:, None]
        rows, heads, _ = divergence.shape
        return divergence.sum() * (self.weight / (rows * heads * self.length))

    def _after(self, inputs: StreamInputs, passage: Passage, memory: Signal, signal: Tensor, look: Look) -> Signal:
        """Compute the memory after a passage."""
        left = memory.left
        if passage.ends_segment:
            leaving = max(0, inputs.raw.shape[1] - self.cached)
            left = inputs.raw[:, :leaving].detach().to(signal.dtype)
        if not self.sticky:
            return Signal(signal, left)
        before = memory.attention if passage.place else torch.zeros_like(memory.attention)
        return Signal(signal, left, before + masses(look.mean.detach(), look.variance.detach(), BINS))
