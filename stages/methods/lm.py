"""Plain language modelling: each token is predicted from its segment, and from the state carried to
it.
"""

from typing import TypeVar

from stages.examples.examples import Batch
from stages.methods.config import MethodSettings
from stages.methods.method import Carried, Loss, Method
from stages.models.language_model import LanguageModel

T = TypeVar("T", bound=MethodSettings)


class LanguageModeling(Method[T]):
    """Mean negative log-likelihood of the targets; backbones that carry state read aligned streams."""

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> Loss:
        encoding = model.read(batch, carried.state)
        mean = model.loss(batch.rows(encoding.hidden), batch.rows(batch.targets))
        return Loss.of(mean, encoding, carried=Carried(encoding.state))
