"""Attention to earlier positions, and to a continuous signal that was fitted to all positions
before those.
"""

from functools import lru_cache
from math import pi
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.models.layers.memory_settings import BINS, InfinitySettings, Signal
from stages.models.layers.relative import RelativeAttention
from stages.models.layers.settings import AttentionConfig, RelativeSettings
from stages.models.layers.sublayer import (
    Attended,
    SegmentContext,
    StreamAttention,
    StreamInputs,
    initialize,
)

CONSTANTS = 32
"""Size of each cache of constants; an entry belongs to one basis or fit, dtype and device."""


class Basis(NamedTuple):
    """N normal densities: one of each width at each of N / len(widths) equally spaced centres on
    [0, 1].
    """

    number: int
    widths: tuple[float, ...]

    def at(self, places: Tensor) -> Tensor:
        """Compute ψ at places [...]; result [..., N].

        A density of width 1/2 is 0.798 at its centre. One unit away it is smaller by exp(-2).
        Centres are 0 and 1:

        >>> Basis(2, (0.5,)).at(torch.tensor([0.0]))
        tensor([[0.7979, 0.1080]])
        """
        return self.expected(places, torch.zeros_like(places))

    def expected(self, mean: Tensor, variance: Tensor) -> Tensor:
        """E[ψ(t)] for normally distributed t; mean and variance [...], result [..., N].

        The integral of the product of two normal densities is a normal density of the distance of
        their means. Its variance is the sum of both variances.

        The density has width 3/5, and t mean 0 and variance 16/25. The result is a density of width
        1 at its centre:

        >>> Basis(1, (0.6,)).expected(torch.tensor([0.0]), torch.tensor([0.64]))
        tensor([[0.3989]])
        """
        centres, squares = _centres_and_squares(self, mean.dtype, mean.device)
        spread = variance[..., None, None] + squares
        distance = (mean[..., None] - centres).square()[..., None]
        height = (2 * pi * spread).log() / -2  # in logarithms, one exponential is enough
        return torch.addcmul(height, distance, -0.5 / spread).exp().flatten(-2)


@lru_cache(CONSTANTS)
def _centres_and_squares(
    basis: Basis, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Centres of the functions, [N / widths], and the squared widths."""
    # Always on the CPU: parameters are counted on the meta device, and the cache would keep tensors
    # without values.
    centres = torch.linspace(
        0, 1, basis.number // len(basis.widths), dtype=torch.float64, device="cpu"
    )
    squares = torch.tensor(basis.widths, dtype=torch.float64, device="cpu").square()
    return centres.to(device, dtype), squares.to(device, dtype)


class Fit(NamedTuple):
    """A ridge regression of vectors at n positions on the basis.

    The first `samples` positions are spread over (0, contraction], and the `new` ones over
    (contraction, 1].
    """

    basis: Basis
    ridge: float
    samples: int
    new: int
    contraction: float

    def positions(self) -> Float[Tensor, " n"]:
        """Positions of the vectors on [0, 1], float64.

        Two samples of the old signal are in the first half, and two new vectors in the second:

        >>> Fit(Basis(1, (0.1,)), ridge=1.0, samples=2, new=2, contraction=0.5).positions().tolist()
        [0.25, 0.5, 0.75, 1.0]
        """
        old_numbers = torch.arange(1, self.samples + 1, dtype=torch.float64, device="cpu")
        new_numbers = torch.arange(1, self.new + 1, dtype=torch.float64, device="cpu")
        # Either part may be empty.
        old = old_numbers / max(1, self.samples)
        new = new_numbers / max(1, self.new)
        return torch.cat((self.contraction * old, self.contraction + (1 - self.contraction) * new))

    def matrix(self, like: Tensor) -> Float[Tensor, "N n"]:
        """Gᵀ, the matrix that turns vectors [n, d] into coefficients [N, d]; solved in float64."""
        return _matrix(self, like.dtype, like.device)


@lru_cache(CONSTANTS)
def _matrix(fit: Fit, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Solve the ridge regression of a fit.

    As many positions again lie outside of [0, 1], half on each side, with zero vectors: there the
    signal ends.

    Source: Martins et al. 2022 (arXiv:2109.00301), equation 6; the padding is that of the authors'
    code.
    """
    inside = fit.positions()
    aside = torch.arange(1, (len(inside) + 1) // 2 + 1, dtype=torch.float64, device="cpu")
    aside = aside / (2 * len(aside))
    psi = fit.basis.at(torch.cat((inside, -aside, 1 + aside))).T
    # Neighbouring functions, and so rows of the matrix, are nearly equal: in float32 the solution
    # would be lost.
    gram = psi @ psi.T + fit.ridge * torch.eye(len(psi), dtype=torch.float64, device="cpu")
    return torch.linalg.solve(gram, psi[:, : len(inside)]).to(device, dtype)


def even_places(samples: int, like: Tensor) -> Float[Tensor, "1 {samples}"]:
    """Evenly spaced places m / S, for m from 1 to S.

    >>> even_places(4, torch.zeros(1))
    tensor([[0.2500, 0.5000, 0.7500, 1.0000]])
    """
    return (torch.arange(1, samples + 1, device=like.device, dtype=like.dtype) / samples)[None]


def masses(
    mean: Float[Tensor, "B heads n"], variance: Float[Tensor, "B heads n"], bins: int
) -> Float[Tensor, "B {bins}"]:
    """Mass of normal densities in each of D equal parts of [0, 1], summed over heads and positions.

    Mass outside of [0, 1] is dropped. Otherwise wide attention would count as attention to both
    ends.

    Narrow attention to the middle is shared by the two adjacent parts:

    >>> masses(torch.tensor([[[0.5]]]), torch.tensor([[[1e-4]]]), 4)
    tensor([[0.0000, 0.5000, 0.5000, 0.0000]])
    """
    edges = torch.arange(bins + 1, device=mean.device, dtype=mean.dtype) / bins
    # The distribution at each edge is (1 + erf) / 2; the constant cancels in differences.
    deviation = (2 * variance[..., None]).sqrt()
    errors = ((edges - mean[..., None]) / deviation).erf()
    return errors.sum((1, 2)).diff().clamp(min=0) / 2


def sticky_places(weights: Float[Tensor, "B bins"], samples: int) -> Float[Tensor, "B {samples}"]:
    """The (m - 1/2) / S quantiles, m from 1 to S, of a density that is constant in each of D equal
    parts of [0, 1].

    The paper draws samples at random. These quantiles have the same density, but are deterministic.
    If all weights are 0, the density is uniform.

    The first half received three quarters of the attention, so it has three of the four samples:

    >>> sticky_places(torch.tensor([[3.0, 1.0]]), 4)
    tensor([[0.0833, 0.2500, 0.4167, 0.7500]])
    """
    # Cumulative distribution at the end of each bin. The smallest number keeps a sum of zeros from
    # being divided by zero.
    ends = (weights + torch.finfo(weights.dtype).tiny).cumsum(1)
    ends = ends / ends[:, -1:]

    quantiles = (torch.arange(samples, device=ends.device, dtype=ends.dtype) + 0.5) / samples
    bins = torch.searchsorted(ends, quantiles.expand(len(ends), -1).contiguous())
    # Rounding may leave the last end below a quantile.
    bins = bins.clamp(max=weights.shape[1] - 1)

    # The distribution is linear within a bin.
    starts = torch.nn.functional.pad(ends, (1, 0))
    start = starts.gather(1, bins)
    end = ends.gather(1, bins)
    fraction = ((quantiles - start) / (end - start)).clamp(0, 1)
    return (bins + fraction) / weights.shape[1]


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
        seen: Bool[Tensor, "B n"],
    ) -> Readout:
        """Read the signal; `seen` marks the queries that may see it, and the others get 0."""
        # a·(K q) is (aᵀK)·q, so the scores of queries and functions are never computed.
        focus = self.keys(self.focus(signal.transpose(1, 2)).transpose(1, 2))
        focus = focus.unflatten(2, (self.heads, -1))
        place, spread = torch.einsum("bhne,bche->cbhn", q, focus) * q.shape[3] ** -0.5
        mean = place.sigmoid()
        # Softplus may underflow to 0, but the divergence takes the logarithm of the variance.
        variance = F.softplus(spread).clamp(min=SMALLEST_VARIANCE)

        values = self.values(signal).unflatten(2, (self.heads, -1)).transpose(1, 2)
        read = self.basis.expected(mean, variance) @ values
        hidden = self.out(read.transpose(1, 2).flatten(2)) * seen[..., None]
        return Readout(hidden, mean, variance)


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
        self.weight = settings.kl / len(config.blocks_with("attention"))

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
        left = x.new_empty(rows, 0, width)
        return Signal(signal, left, x.new_zeros(rows, BINS) if self.sticky else None)

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
        left = memory.left
        if passage.place:
            return signal
        if passage.document_offset is not None:
            # What is from an earlier document than the segment's first position becomes 0. A signal
            # belongs to the document of the first position of the previous segment.
            offset = passage.document_offset[:, :1, None]
            ages = self.cached + torch.arange(left.shape[1], 0, -1, device=left.device)
            signal = signal * (offset >= self.length)
            left = left * (offset >= ages[:, None])
        return self.writer(signal, left, memory.attention)

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
        left = memory.left
        if passage.ends_segment:
            leaving = max(0, inputs.raw.shape[1] - self.cached)
            left = inputs.raw[:, :leaving].detach().to(signal.dtype)
        if not self.sticky:
            return Signal(signal, left)

        # Attention is counted over one segment.
        before = memory.attention if passage.place else torch.zeros_like(memory.attention)
        attention = masses(readout.mean.detach(), readout.variance.detach(), BINS)
        return Signal(signal, left, before + attention)
