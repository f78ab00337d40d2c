"""Plain language modelling: each token is predicted from its segment, and from the state carried to it."""

from torch import Tensor

from stages.methods.method import Batch, Method
from stages.models.config import ModelConfig
from stages.models.language_model import LanguageModel, State


class LanguageModeling(Method):
    """Mean negative log-likelihood of the targets; through backbones that carry state, over aligned streams."""

    def carries_state(self, config: ModelConfig) -> bool:
        return config.carries_state

    def loss(self, model: LanguageModel, batch: Batch, state: State) -> tuple[Tensor, State]:
        encoding = model.encode(batch.inputs, state)
        return model.loss(encoding.hidden.flatten(0, 1), batch.targets.flatten()), encoding.state
