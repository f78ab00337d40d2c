"""Settings of layers with memory of a stream, or with learned slots; free of torch."""

from itertools import count, islice
from math import isqrt
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from stages.errors import UsageError
from stages.models.config import Size, StateArray
from stages.models.layers.settings import (
    AttentionConfig,
    LookupSettings,
    StreamAttentionSettings,
    SublayerSettings,
)


class Slots(NamedTuple):
    """Memory of compressive attention."""

    slots: Any
    """Compressed inputs, the oldest first, not normalized yet, [B, s, d]."""


class CompressiveSettings(StreamAttentionSettings):
    """Relative attention that compresses cached inputs before it drops them, `rate` inputs to one
    slot.

    Source: Rae et al. 2020 (Compressive Transformer, arXiv:1911.05507).
    """

    name: Literal["compressive"] = "compressive"
    long_length: Annotated[int, Field(ge=0, lt=2**31)] = 128
    """C, slots that are attended to before the cached positions; the oldest are dropped."""
    rate: Size = 4
    """c, positions that make a slot; segments and cached positions are multiples of it."""
    compression: Literal["conv", "mean", "max"] = "conv"
    """How a slot is made: a convolution trained to keep what attention reads, the mean, or the
    maximum.
    """

    def memory_spec(self, model: AttentionConfig, context: int) -> Slots:
        """Shape of the memory: C slots of the model's width.

        Raises: UsageError if lengths are not multiples of the rate.
        """
        self._require_multiple(
            "--segment-length, or --context at test,", context, min_length=self.rate
        )
        self._require_multiple("--mem-length", model.lengths.cached, min_length=0)
        return Slots(StateArray((1, self.long_length, model.width)))

    def _require_multiple(self, what: str, length: int, min_length: int) -> None:
        if length % self.rate:
            near = max(min_length, round(length / self.rate) * self.rate)
            raise UsageError(
                f"Attention 'compressive' makes one slot of {self.rate} positions, and {what} is {length}, "
                f"no multiple of {self.rate}: {near} is (or another model.attention.rate, in training)."
            )


Width = Annotated[float, Field(ge=1e-3, le=10)]
BINS = 128
"""D, number of equal parts of the signal in which attention is counted, to choose where it is
sampled.
"""


class Signal(NamedTuple):
    """Memory of attention to a continuous signal."""

    coefficients: Any
    """The signal, [B, N, d]."""
    left: Any
    """Inputs that left the cache when a segment ended, [B, L, d]; they enter the signal when the
    next begins.
    """
    attention: Any = None
    """Attention to each part of a sticky signal during the current segment, [B, D]."""


class InfinitySettings(StreamAttentionSettings):
    """Relative attention, and attention to a continuous signal of fixed size that is fitted to all
    earlier positions.

    Source: Martins et al. 2022 (∞-former, arXiv:2109.00301).
    """

    name: Literal["infinity"] = "infinity"
    basis: Annotated[int, Field(gt=0, le=4096)] = 128
    """N, Gaussian functions that the signal is made of: equally spaced on [0, 1], one of each width
    at each place.
    """
    widths: Annotated[tuple[Width, ...], Field(min_length=1)] = (0.01, 0.05)
    """Their standard deviations."""
    samples: Annotated[int, Field(gt=0, le=8192)] = 128
    """S, values of the old signal that the new one is fitted to, beside what leaves the cache."""
    contraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """τ, the part of the signal that the old one is contracted to when a segment is added."""
    ridge: Annotated[float, Field(ge=1e-4)] = 1.0
    """λ, how much the fit holds coefficients down."""
    sticky: bool = True
    """Whether the old signal is sampled where attention fell, so that this takes more room; else
    evenly.
    """
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
            raise ValueError(
                f"basis {self.basis} is not a multiple of the number of widths, {number}: {near} is"
            )
        return self

    def memory_spec(self, model: AttentionConfig, context: int) -> Signal:
        """Shapes of the coefficients, of the inputs that left the cache, and, if sticky, of the
        attention to each bin.

        Raises: UsageError if the positions that leave the cache are not whole segments.
        """
        cached = model.lengths.cached
        if cached % context:
            near = round(cached / context) * context
            raise UsageError(
                f"Attention 'infinity' writes a segment at a time, so --mem-length is a multiple of the segment length "
                f"(--context at test), {context}; {cached} is none: {near} is."
            )
        signal = StateArray((1, self.basis, model.width))
        queue = StateArray((1, context, model.width))
        return Signal(signal, queue, StateArray((1, BINS)) if self.sticky else None)

    def stored_activations(self, model: AttentionConfig) -> int:
        """Number of attention weights, one for each head and function."""
        return model.heads * self.basis


class KeysAndValues(NamedTuple):
    """Memory of memorizing attention: the latest N entries, the oldest first, [B, heads, N, d_head]
    each.
    """

    keys: Any
    values: Any


class MemorizingSettings(StreamAttentionSettings):
    """Attention that also looks up stored keys and values of earlier positions, which are not
    computed again.

    Source: Wu et al. 2022 (Memorizing Transformers, arXiv:2203.08913).
    """

    name: Literal["memorizing"] = "memorizing"
    long_length: Annotated[int, Field(ge=0, lt=2**31)] = 2048
    """N, positions before the segment whose keys and values are kept; 0: none, attention is local.
    """
    neighbors: Size = 32
    """k, entries of them that a head reads: those with the largest scores."""
    scope: Literal["document", "stream"] = "document"
    """Whether a position finds entries of its own document alone, or all."""
    gate_bias: float = 0.0
    """Where the gate of each head begins, before the sigmoid: 0 weighs memory and local attention
    alike.
    """
    gate_lr: Annotated[float, Field(gt=0)] | None = None
    """Learning rate of the gates, the same at every step; None: they learn as all weights do."""
    buckets: Annotated[int, Field(ge=4, lt=2**31)] = 32
    """Number of distance buckets, each with a learned bias of local attention: half of them hold
    one distance, the others grow."""
    longest_distance: Size = 128
    """Distance from which on all are alike; at least half of the number of buckets."""

    @model_validator(mode="after")
    def _buckets_fit(self) -> Self:
        single = self.buckets // 2
        if self.longest_distance < single:
            raise ValueError(
                f"longest_distance {self.longest_distance} is less than half of the {self.buckets} buckets, which "
                f"hold one distance each: {single} is the least"
            )
        return self

    def usual_blocks(self, blocks: int) -> tuple[int, ...]:
        """One block, at three quarters of the depth: layer 9 of 12 in the paper (section 4.1).

        Its local attention has no recurrence beyond cached inputs. So memory in all blocks costs
        more than it gains.
        """
        return (-(-3 * blocks // 4),)

    def memory_spec(self, model: AttentionConfig, context: int) -> KeysAndValues:
        """Shapes of the stored keys and values of each head."""
        array = StateArray((1, model.heads, self.long_length, model.width // model.heads))
        return KeysAndValues(array, array)

    def stored_activations(self, model: AttentionConfig) -> int:
        """Size of the keys and values of the k best entries of all heads."""
        return 2 * min(self.neighbors, self.long_length) * model.width


class MemSizerSettings(SublayerSettings):
    """Linear attention through a few slots that summarize the window so far; the number of heads is
    the block's.

    Source: Zhang and Cai 2022 (arXiv:2203.12644).
    """

    in_pieces: ClassVar[bool] = True

    name: Literal["memsizer"] = "memsizer"
    slots: Size = 32
    """k, what a position reads and writes."""
    chunk: Size = 64
    """Positions whose products with each other are made whole; any number gives the same figures.
    """


class NgramMemory(NamedTuple):
    """Memory of hashed n-grams, with a row for each stream."""

    tokens: Any
    """Previous tokens, the latest last, int64 [B, longest order - 1]; -1 before the start of a
    stream.
    """
    values: Any
    """Gated and normalized values that the convolution will still read, the latest last, [B, reach,
    d].
    """


class HashedNgramsSettings(LookupSettings):
    """Learned rows for the latest two and three tokens, found by hashing, and added through a gate.

    Source: Cheng et al. 2026 (Engram, arXiv:2601.07372).
    """

    name: Literal["hashed-ngrams"] = "hashed-ngrams"
    orders: tuple[Annotated[int, Field(ge=2)], ...] = (2, 3)
    """Lengths of the n-grams that are looked up."""
    heads: Size = 4
    """Tables for each length; each has its own size, so that two n-grams seldom share a row in all.
    """
    slots: Size = 16384
    """Rows of a table: the next prime numbers from here on."""
    entry_width: Size = 16
    """Numbers in a row."""
    kernel: Size = 4
    """Taps of the convolution over what was looked up; they lie as far apart as the longest n-gram
    is long.
    """
    table_lr: Annotated[float, Field(gt=0)] = 1e-2
    """Learning rate of the tables, the same at every step."""
    on_host: bool = False
    """Whether tables stay in the host's memory when the model goes to a GPU; rows that are read
    follow it, and an update changes these rows alone."""
    scope: Literal["stream", "document"] = "stream"
    """Whether n-grams reach across the beginning of a document."""
    gate: Literal["plain", "signed-root"] = "plain"
    """The gate of a score a: σ(a), as in the paper, or σ(sign(a) √|a|), as in the authors' code."""

    @model_validator(mode="after")
    def _orders_are_told_once(self) -> Self:
        if not self.orders or len(set(self.orders)) < len(self.orders):
            raise ValueError(
                f"orders {list(self.orders)} must name at least one length, and each once: [2, 3] does"
            )
        return self

    @property
    def sizes(self) -> list[list[int]]:
        """Number of rows of each table, by order and head: distinct prime numbers."""
        # Trial division is fast enough: there are few tables, and their sizes are small.
        primes = filter(_is_prime, count(max(2, self.slots)))
        return [list(islice(primes, self.heads)) for _ in self.orders]

    @property
    def host_table(self) -> tuple[int, int]:
        return (sum(map(sum, self.sizes)), self.entry_width) if self.on_host else (0, 0)

    @property
    def before(self) -> int:
        """Number of tokens before a position that its n-grams include."""
        return max(self.orders) - 1

    @property
    def reach(self) -> int:
        """Number of positions before a position that its convolution reads."""
        return (self.kernel - 1) * max(self.orders)

    def memory_spec(self, model: AttentionConfig) -> NgramMemory:
        return NgramMemory(
            StateArray((1, self.before), "int64"), StateArray((1, self.reach, model.width))
        )


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))


WIDEST_QUERY = 512
"""Width of the paper's queries."""


class ProductKeysSettings(SublayerSettings):
    """A memory of `sub_keys`² learned slots; each head of each position reads the best few.

    Source: Lample et al. 2019 (arXiv:1907.05242).
    """

    name: Literal["product-keys"] = "product-keys"
    heads: Size = 4
    """Queries a position, each with keys of its own; the slots' values are shared."""
    sub_keys: Size = 128
    """n, keys of each half; their pairs are the slots, n² of them."""
    neighbors: Size = 32
    """k, slots that a head reads."""
    query_width: Size | None = None
    """Width of a head's query; None: the width of the model, at most 512."""
    query_norm: Literal["batch", "layer"] = "batch"
    """Over all positions of a batch, each dimension by itself; or over the dimensions of a query.
    """
    value_lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate of the values, the same at every step."""

    @model_validator(mode="after")
    def _halves_and_neighbors_fit(self) -> Self:
        if self.neighbors > self.sub_keys:
            raise ValueError(
                f"neighbors {self.neighbors} is more than sub_keys; {self.sub_keys} is the most"
            )
        if self.query_width is not None and self.query_width % 2:
            raise ValueError(
                f"query_width {self.query_width} has no halves of equal width; {self.query_width + 1} has"
            )
        return self

    @property
    def slots(self) -> int:
        return self.sub_keys**2

    def queries_of(self, width: int) -> int:
        """Width of a head's query in a model of width `width`; even, because each half has its own
        keys.
        """
        return self.query_width or max(2, min(WIDEST_QUERY, width) // 2 * 2)


class MemoryPlusSettings(ProductKeysSettings):
    """Product keys with values that all blocks share, and a gate on the result.

    Source: Berges et al. 2024 (arXiv:2412.09764).
    """

    name: Literal["memory-plus"] = "memory-plus"  # type: ignore[assignment]
    query_norm: Literal["batch", "layer"] = "layer"
    """Norm of queries, as of product keys."""

    def usual_blocks(self, blocks: int) -> tuple[int, ...]:
        """Three blocks, spread around the middle, as in the paper; fewer in a small model."""
        return tuple(sorted({max(1, round(blocks * quarter / 4)) for quarter in (1, 2, 3)}))
