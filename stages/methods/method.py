"""What a training objective is: the batches that it wants and the loss that it makes of one."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from stages.methods.config import MethodSettings
from stages.methods.segments import Segments
from stages.models.config import ModelConfig
from stages.models.language_model import LanguageModel, State


class BatchIndex(NamedTuple):
    """Which forward batch of a training run it is: the `number`-th, of update `update` of `updates`; all from 0."""

    number: int
    update: int
    updates: int
    seed: int

    @property
    def done(self) -> float:
        """Share of the updates that lie before it."""
        return self.update / self.updates


@dataclass
class Batch:
    """Segments that are read together: inputs and targets, int64 [B, L]."""

    inputs: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> Self:
        """The same batch on a device."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: part.to(device) for name, part in parts.items() if isinstance(part, Tensor)})


class EncodedTokens(Protocol):
    """Tokens [start, start + n) of the validation split that a model has read."""

    start: int

    @property
    def targets(self) -> Tensor:
        """The tokens, int64 [n]."""

    def key(self, name: str) -> Tensor:
        """A representation of their contexts, `hidden` or `ffn-input`, [n, d]."""


@dataclass(frozen=True)
class SideInputs:
    """What other stages made for a method, beside tokens.

    `packing`: segments, int64 [S], in an order in which those that follow each other are alike; None:
    there is none. `neighbor_tokens`: by split, the tokens of each token's neighbours, int [T, k], -1
    where one is missing.
    """

    packing: np.ndarray | None = None
    neighbor_tokens: Mapping[str, np.ndarray] = field(default_factory=dict)


class Method(ABC):
    """A training objective. The loop asks for an epoch's batches, forms each and minimizes its loss.

    `settings`: of a method that trains with memory. `side_inputs`: what it learns from beside tokens.
    """

    hints: ClassVar[str] = ""
    """What else to try where the loss is no number, as it stands in a list."""

    def __init__(self, settings: MethodSettings | None = None, side_inputs: SideInputs | None = None) -> None:
        self.side_inputs = side_inputs or SideInputs()

    def trained(self, model: LanguageModel) -> Iterable[nn.Parameter]:
        """The parameters that are learnt; all others stay as they are."""
        return model.parameters()

    def order(self, segments: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Segments of an epoch's batches, int64 [batches, size]: a permutation drawn from (seed, epoch).

        Segments that do not fill the last batch are left out; the next epoch draws others.
        """
        permutation = np.random.default_rng([seed, epoch]).permutation(segments)
        batches = segments // size
        return permutation[: batches * size].reshape(batches, size)

    def carries_state(self, config: ModelConfig) -> bool:
        """Whether row b of a batch goes on from row b of the one before; `order` is then `aligned_order`."""
        return False

    def rows_together(self, config: ModelConfig) -> int:
        """How many rows of a batch belong together: processes share a batch between such groups."""
        return 1

    def batch(self, split: Segments, segments: np.ndarray, index: BatchIndex) -> Batch:
        """The batch of the given segments [B]."""
        inputs, targets = split.read(segments)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    @abstractmethod
    def loss(self, model: LanguageModel, batch: Batch, state: State) -> tuple[Tensor, State]:
        """What is minimized: a scalar, the mean over the batch's tokens, in nats; and the state after the batch.

        Args:
            state: the state after the batch before, without gradient; None if none is carried to this one.
        """

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        """Log-probability of tokens that validation looks at, float [n], in nats; no gradients.

        Args:
            starts: where each token's segment begins among them, int64 [n].
        """
        return model.log_prob(read.key("hidden"), read.targets)[0]


def aligned_order(segments: int, size: int) -> np.ndarray:
    """Segments of batches whose row b is one stream, int64 [batches, size]; the same in every epoch.

    The split is cut into `size` streams of equal length; segments after the last stream are left out.
    """
    batches = segments // size
    return np.arange(size * batches).reshape(size, batches).T
