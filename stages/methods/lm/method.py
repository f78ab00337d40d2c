"""Plain language modelling: each token is predicted from its segment, and from the state carried to it."""

import numpy as np
from torch import Tensor

from stages.methods.lm.config import LmConfig
from stages.methods.method import Batch, BatchIndex, BatchLayout, Carried, EncodedTokens, Method, ParameterGroup
from stages.methods.segments import Segments, shuffled_order
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel


class LanguageModeling(Method[LmConfig]):
    """Mean negative log-likelihood of the targets; through backbones that carry state, over aligned streams."""

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup(list(model.parameters()))]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout(streams=model.carries_state)

    def order(self, segments: int, size: int, seed: int, epoch: int) -> np.ndarray:
        return shuffled_order(segments, size, seed, epoch)

    def batch(self, split: Segments, segments: np.ndarray, index: BatchIndex) -> Batch:
        return Batch.read(split, segments)

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        encoding = batch.encode(model, carried.state)
        return model.loss(encoding.hidden.flatten(0, 1), batch.targets.flatten()), Carried(encoding.state)

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        return model.log_prob(read.key("hidden"), read.targets)[0]
