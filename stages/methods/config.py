"""Settings of the methods that train with memory. Free of torch."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from stages.config import Settings
from stages.errors import UsageError
from stages.models.config import ModelConfig

TRAIN, VALID = "train", "valid"
"""The splits that training reads."""
CARRIED = 2
"""Consecutive segments where a backbone carries state: the one that is read and the one before (appendix E)."""
Share = Annotated[float, Field(ge=0, le=1)]


class MethodSettings(Settings):
    """What a method that trains with memory is told, and what it asks of the rest of a training run."""

    takes: ClassVar[tuple[str, ...]] = ("tokens",)
    """Kinds of artifacts that it learns from."""
    usual_backbone: ClassVar[str | None] = None
    """Where the user names none; None: the one that is usual everywhere."""

    @property
    def neighbors_read(self) -> int:
        """Neighbours of a token that the model's gate reads; 0: it has none."""
        return 0

    @property
    def continues(self) -> bool:
        """Whether training must begin from a trained model."""
        return False

    def fitted(self, model: ModelConfig) -> ModelConfig:
        """The model with what this method adds to it."""
        return model

    def sized(self, model: ModelConfig, batch: int, processes: int) -> Self:
        """The settings with what follows from the model and the batches filled in.

        Args:
            batch: segments of a forward batch, over all processes.
            processes: how many train together.
        Raises: UsageError if these do not go together.
        """
        return self


class TrimeConfig(MethodSettings):
    """One softmax over the vocabulary and the earlier positions of the same segment.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674).
    """

    method: Literal["trime"] = "trime"
    key: Literal["hidden", "ffn-input"] | None = None
    """Representation that memory is searched with; None: the backbone's first."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """τ: memory scores are divided by it, those of the vocabulary are not."""
    warmup: Share = 0.05
    """Share of the updates, the first ones, that minimize the plain loss."""
    backpropagate: bool = True
    """Whether gradients flow into the keys that are read, not only into those that read."""

    def sized(self, model: ModelConfig, batch: int, processes: int) -> Self:
        key = self.key or model.keys[0]
        if key not in model.keys:
            raise UsageError(
                f"memory.key: a model with backbone {model.backbone!r} has no key {key!r}; use {model.keys[0]!r}."
            )
        return self.model_copy(update={"key": key})


class TrimeLongConfig(TrimeConfig):
    """The memory goes on into the segments before."""

    method: Literal["trime-long"] = "trime-long"  # type: ignore[assignment]
    consecutive: Annotated[int, Field(gt=0)] | None = None
    """m, consecutive segments that share a memory; None: all that a process has of a forward batch. A
    backbone that carries state reads one of them at a time, those before are constant; None: 2."""
    scope: Literal["stream", "document"] = "document"
    """Whether positions of earlier segments count that belong to another document."""

    def sized(self, model: ModelConfig, batch: int, processes: int) -> Self:
        share = max(1, batch // processes)
        consecutive = self.consecutive or (CARRIED if model.carries_state else share)
        if not model.carries_state and share % consecutive:
            legal = [m for m in range(1, share + 1) if share % m == 0]
            raise UsageError(
                f"memory.consecutive: a process has {share} segments of a forward batch, which {consecutive} does "
                f"not divide; use {min(legal, key=lambda m: abs(m - consecutive))}, or another --batch-tokens."
            )
        return super().sized(model, batch, processes).model_copy(update={"consecutive": consecutive})


class TrimeExtConfig(TrimeConfig):
    """The memory is every other segment of the batch; batches hold segments that are alike."""

    takes: ClassVar[tuple[str, ...]] = ("tokens", "batches")

    method: Literal["trime-ext"] = "trime-ext"  # type: ignore[assignment]
    local_dropout: Share = 0.9
    """p: probability that a forward batch goes without the local part of memory."""

    def sized(self, model: ModelConfig, batch: int, processes: int) -> Self:
        if batch < 2:
            raise UsageError(
                "method trime-ext reads the other segments of a forward batch, but there is one alone; "
                "raise --batch-tokens, or lower --segment-length."
            )
        return super().sized(model, batch, processes)


class SpalmConfig(MethodSettings):
    """Tokens of precomputed neighbours enter the hidden state through a gate.

    Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557).
    """

    takes: ClassVar[tuple[str, ...]] = ("neighbors",)
    usual_backbone: ClassVar[str | None] = "transformer-xl"

    method: Literal["spalm"] = "spalm"
    k: Annotated[int, Field(gt=0)] = 4
    """Neighbours that a position reads, the best of those stored."""
    only_gate: bool = False
    """Whether all but the gate stays as the model that training begins from."""

    @property
    def neighbors_read(self) -> int:
        return self.k

    @property
    def continues(self) -> bool:
        return self.only_gate

    def fitted(self, model: ModelConfig) -> ModelConfig:
        return model if model.gate else model.model_copy(update={"gate": "vector"})


MemoryConfig = Annotated[
    TrimeConfig | TrimeLongConfig | TrimeExtConfig | SpalmConfig,
    Field(discriminator="method"),
]

MEMORY_CONFIGS: dict[str, type[MethodSettings]] = {
    config.model_fields["method"].default: config
    for config in (TrimeConfig, TrimeLongConfig, TrimeExtConfig, SpalmConfig)
}
"""Methods that train with memory -> their settings."""


def methods_for(kind: str) -> str:
    """The methods that learn from artifacts of a kind, as a message names them."""
    return ", ".join(name for name, settings in MEMORY_CONFIGS.items() if kind in settings.takes)


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
