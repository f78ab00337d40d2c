"""Settings of the methods that train with in-batch memory. Free of torch."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from stages.config import Settings
from stages.errors import UsageError

CARRIED = 2
"""Consecutive segments where a backbone carries state: the one that is read and the one before (appendix E)."""
Share = Annotated[float, Field(ge=0, le=1)]


class TrimeConfig(Settings):
    """One softmax over the vocabulary and the earlier positions of the same segment.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674).
    """

    takes_batches: ClassVar[bool] = False
    """Whether it can be given packed batches in place of tokens."""

    method: Literal["trime"] = "trime"
    key: Literal["hidden", "ffn-input"] | None = None
    """Representation that memory is searched with; None: the backbone's first."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """τ: memory scores are divided by it, those of the vocabulary are not."""
    warmup: Share = 0.05
    """Share of the updates, the first ones, that minimize the plain loss."""
    backpropagate: bool = True
    """Whether gradients flow into the keys that are read, not only into those that read."""

    def sized(self, key: str, batch: int, processes: int, carried: bool) -> Self:
        """The settings with what follows from the model and the batches filled in.

        Args:
            key: the representation that memory is searched with.
            batch: segments of a forward batch, over all processes.
            processes: how many train together.
            carried: whether the backbone carries state from segment to segment.
        Raises: UsageError if these do not go together.
        """
        return self.model_copy(update={"key": key})


class TrimeLongConfig(TrimeConfig):
    """The memory goes on into the segments before."""

    method: Literal["trime-long"] = "trime-long"  # type: ignore[assignment]
    consecutive: Annotated[int, Field(gt=0)] | None = None
    """m, consecutive segments that share a memory; None: all that a process has of a forward batch. A
    backbone that carries state reads one of them at a time, those before are constant; None: 2."""
    scope: Literal["stream", "document"] = "document"
    """Whether positions of earlier segments count that belong to another document."""

    def sized(self, key: str, batch: int, processes: int, carried: bool) -> Self:
        share = max(1, batch // processes)
        consecutive = self.consecutive or (CARRIED if carried else share)
        if not carried and share % consecutive:
            legal = [m for m in range(1, share + 1) if share % m == 0]
            raise UsageError(
                f"memory.consecutive: a process has {share} segments of a forward batch, which {consecutive} does "
                f"not divide; use {min(legal, key=lambda m: abs(m - consecutive))}, or another --batch-tokens."
            )
        return super().sized(key, batch, processes, carried).model_copy(update={"consecutive": consecutive})


class TrimeExtConfig(TrimeConfig):
    """The memory is every other segment of the batch; batches hold segments that are alike."""

    takes_batches: ClassVar[bool] = True

    method: Literal["trime-ext"] = "trime-ext"  # type: ignore[assignment]
    local_dropout: Share = 0.9
    """p: probability that a forward batch goes without the local part of memory."""

    def sized(self, key: str, batch: int, processes: int, carried: bool) -> Self:
        if batch < 2:
            raise UsageError(
                "method trime-ext reads the other segments of a forward batch, but there is one alone; "
                "raise --batch-tokens, or lower --segment-length."
            )
        return super().sized(key, batch, processes, carried)


MemoryConfig = Annotated[TrimeConfig | TrimeLongConfig | TrimeExtConfig, Field(discriminator="method")]

MEMORY_CONFIGS: dict[str, type[TrimeConfig]] = {
    config.model_fields["method"].default: config for config in (TrimeConfig, TrimeLongConfig, TrimeExtConfig)
}
"""Methods that train with memory -> their settings."""


def with_method(memory: Any, method: str) -> Any:
    """The settings of `memory` marked as those of `method`; None where it trains without memory.

    Raises: ValueError for settings of a method that has none, or another's.
    """
    if method not in MEMORY_CONFIGS:
        if memory is not None:
            raise ValueError(
                f"memory: method {method!r} trains without memory; leave it out, "
                f"or train with one of {', '.join(MEMORY_CONFIGS)}"
            )
        return None
    if memory is None:
        return MEMORY_CONFIGS[method]()
    if not isinstance(memory, dict):
        return memory
    if memory.get("method", method) != method:
        raise ValueError(f"memory.method is {memory['method']!r}, but the method is {method!r}; leave it out")
    return memory | {"method": method}
