"""Online EWC: weights are important by the Fisher information of the labels."""

import torch.nn.functional as F
from torch import Tensor

from stages.examples.documents import LabelledBatch
from stages.methods.stream.config import EwcConfig
from stages.methods.stream.importance import Anchored
from stages.models.language_model import LanguageModel


class Ewc(Anchored[EwcConfig]):
    """Ω is the mean of (∂ log p(y | x))² with the true labels: the empirical Fisher information, its diagonal.

    Source: Kirkpatrick et al. 2017 (arXiv:1612.00796); online as in Schwarz et al. 2018 (arXiv:1805.06370), section 3.
    """

    def value(self, model: LanguageModel, batch: LabelledBatch) -> Tensor:
        return F.cross_entropy(model.label_scores(batch), batch.labels)

    def weighed(self, gradient: Tensor) -> Tensor:
        return gradient.square()
