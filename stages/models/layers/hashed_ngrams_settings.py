"""Settings of hashed n-grams; free of torch."""

from collections.abc import Iterator
from itertools import count, islice
from math import isqrt
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from stages.models.config import Size, StateArray
from stages.models.layers.settings import AttentionConfig, LookupSettings


class NgramMemory(NamedTuple):
    """Memory of hashed n-grams, a row for each stream."""

    tokens: Any
    """Those before the next position, the latest last, int64 [B, longest order - 1]; -1 where a stream begins."""
    values: Any
    """Gated and normalized values that the convolution still reaches, the latest last, [B, reach, d]."""


class HashedNgramsSettings(LookupSettings):
    """Learned rows for the latest two and three tokens, found by hashing and let in by a gate.

    Source: Cheng et al. 2026 (Engram, arXiv:2601.07372).
    """

    name: Literal["hashed-ngrams"] = "hashed-ngrams"
    orders: tuple[Annotated[int, Field(ge=2)], ...] = (2, 3)
    """Lengths of the n-grams that are looked up."""
    heads: Size = 4
    """Tables for each length; each has its own size, so that two n-grams seldom share a row in all."""
    slots: Size = 16384
    """Rows of a table: the next prime numbers from here on."""
    entry_width: Size = 16
    """Numbers in a row."""
    kernel: Size = 4
    """Taps of the convolution over what was looked up; they lie as far apart as the longest n-gram is long."""
    table_lr: Annotated[float, Field(gt=0)] = 1e-2
    """Learning rate of the tables, the same at every step."""
    on_host: bool = False
    """Whether tables stay in the host's memory when the model goes to a GPU; rows that are read follow it."""
    scope: Literal["stream", "document"] = "stream"
    """Whether n-grams reach across the beginning of a document."""

    @model_validator(mode="after")
    def _orders_are_told_once(self) -> Self:
        if not self.orders or len(set(self.orders)) < len(self.orders):
            raise ValueError(f"orders {list(self.orders)} must name at least one length, and each once: [2, 3] does")
        return self

    @property
    def sizes(self) -> list[list[int]]:
        """Rows of each table, prime numbers that are all different, by order and head."""
        primes = _primes(self.slots)
        return [list(islice(primes, self.heads)) for _ in self.orders]

    @property
    def table_numbers(self) -> int:
        """Numbers in the tables of a block."""
        return sum(map(sum, self.sizes)) * self.entry_width

    @property
    def before(self) -> int:
        """Tokens before a position that its n-grams reach."""
        return max(self.orders) - 1

    @property
    def reach(self) -> int:
        """Positions before one that its convolution reaches."""
        return (self.kernel - 1) * max(self.orders)

    def memory_spec(self, model: AttentionConfig) -> NgramMemory:
        return NgramMemory(StateArray((1, self.before), "int64"), StateArray((1, self.reach, model.width)))


def _primes(start: int) -> Iterator[int]:
    """Prime numbers from `start` on."""
    return (n for n in count(max(2, start)) if all(n % divisor for divisor in range(2, isqrt(n) + 1)))
