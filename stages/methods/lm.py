"""Plain language modelling: each token is predicted from its segment alone."""

from torch import Tensor

from stages.methods.method import Batch, Method
from stages.models.language_model import LanguageModel


class LanguageModeling(Method):
    """Mean negative log-likelihood of the targets."""

    def loss(self, model: LanguageModel, batch: Batch) -> Tensor:
        hidden = model.encode(batch.inputs).hidden
        return model.loss(hidden.flatten(0, 1), batch.targets.flatten())
