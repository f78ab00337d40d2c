"""MAS: weights are important by how much the scores of labels change with them; labels are not read."""

from torch import Tensor

from stages.examples.documents import LabelledBatch
from stages.methods.stream.config import MasConfig
from stages.methods.stream.importance import Anchored
from stages.models.language_model import LanguageModel


class Mas(Anchored[MasConfig]):
    """Ω is the mean of the absolute gradient of |o(x)|², o being the scores before the softmax.

    Source: Aljundi et al. 2018 (arXiv:1711.09601), equation 3 with the squared norm of section 4.1.
    """

    def value(self, model: LanguageModel, batch: LabelledBatch) -> Tensor:
        scores = model.label_scores(batch)
        # A position that cannot be an answer has -inf, whatever the weights are.
        return scores[scores.isfinite()].square().sum()

    def weighed(self, gradient: Tensor) -> Tensor:
        return gradient.abs()
