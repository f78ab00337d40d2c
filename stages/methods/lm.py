"""Plain language modelling: each token is predicted from its segment, and from the state carried to it."""

from typing import TypeVar

import numpy as np
from torch import Tensor

from stages.examples.batching import shuffled_order
from stages.examples.examples import Batch, Examples
from stages.methods.config import MethodSettings
from stages.methods.method import BatchIndex, BatchLayout, Carried, EncodedTokens, Method, ParameterGroup
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel

T = TypeVar("T", bound=MethodSettings)


class LanguageModeling(Method[T]):
    """Mean negative log-likelihood of the targets; through backbones that carry state, over aligned streams."""

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup(list(model.parameters()))]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout(streams=model.carries_state)

    def order(self, count: int, size: int, seed: int, epoch: int) -> np.ndarray:
        return shuffled_order(count, size, seed, epoch)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        return examples.batch(which)

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        encoding = model.read(batch, carried.state)
        return model.loss(batch.rows(encoding.hidden), batch.rows(batch.targets)), Carried(encoding.state)

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        return model.log_prob(read.key("hidden"), read.targets)[0]
