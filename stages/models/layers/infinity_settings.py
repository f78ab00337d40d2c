"""Settings of attention to a continuous signal; free of torch."""

from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from stages.errors import UsageError
from stages.models.config import StateArray
from stages.models.layers.settings import AttentionConfig, StreamAttentionSettings

Width = Annotated[float, Field(ge=1e-3, le=10)]
BINS = 128
"""D, equal parts of the signal whose attention says where it is sampled."""


class Signal(NamedTuple):
    """Memory of attention to a continuous signal."""

    coefficients: Any
    """The signal, [B, N, d]."""
    left: Any
    """Inputs that left the cache when a segment ended, [B, L, d]; they enter the signal when the next begins."""
    attention: Any = None
    """How much each part of a sticky signal was attended to in the segment under way, [B, D]."""


class InfinitySettings(StreamAttentionSettings):
    """Attention by distance, and to a continuous signal of bounded size that all earlier positions are fitted to.

    Source: Martins et al. 2022 (∞-former, arXiv:2109.00301).
    """

    name: Literal["infinity"] = "infinity"
    basis: Annotated[int, Field(gt=0, le=4096)] = 128
    """N, Gaussian functions that the signal is made of: equally spaced on [0, 1], one of each width at each place."""
    widths: Annotated[tuple[Width, ...], Field(min_length=1)] = (0.01, 0.05)
    """Their standard deviations."""
    samples: Annotated[int, Field(gt=0, le=8192)] = 128
    """S, values of the old signal that the new one is fitted to, beside what leaves the cache."""
    contraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """τ, the part of the signal that the old one is contracted to when a segment is added."""
    ridge: Annotated[float, Field(ge=1e-4)] = 1.0
    """λ, how much the fit holds coefficients down."""
    sticky: bool = True
    """Whether the old signal is sampled where attention fell, so that this takes more room; else evenly."""
    deviation: Width = 0.1
    """σ_0, the standard deviation of attention that training pulls towards."""
    kl: Annotated[float, Field(ge=0)] = 1e-5
    """w, how strongly."""
    scope: Literal["document", "stream"] = "document"
    """Whether the signal begins anew with each document, or never."""

    @model_validator(mode="after")
    def _widths_fit(self) -> Self:
        number = len(self.widths)
        if self.basis % number:
            near = max(1, round(self.basis / number)) * number
            raise ValueError(f"basis {self.basis} is not a multiple of the number of widths, {number}: {near} is")
        return self

    def memory_spec(self, model: AttentionConfig, context: int) -> Signal:
        """Coefficients, what left the cache last, and, of a sticky memory, how much attention each bin had.

        Raises: UsageError if other numbers of positions than a segment's would leave the cache.
        """
        cached = model.lengths.mem_length or 0
        if cached % context:
            near = round(cached / context) * context
            raise UsageError(
                f"Attention 'infinity' writes a segment at a time, so --mem-length is a multiple of the segment length "
                f"(--context at test), {context}; {cached} is none: {near} is."
            )
        signal, left = (StateArray((1, number, model.width)) for number in (self.basis, context))
        return Signal(signal, left, StateArray((1, BINS)) if self.sticky else None)

    def taken_numbers(self, model: AttentionConfig) -> int:
        """How much each head attends to each function."""
        return model.heads * self.basis
