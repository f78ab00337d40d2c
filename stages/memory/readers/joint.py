"""Reader `joint`: one softmax over the vocabulary's scores and the memory's."""

import torch
from torch import Tensor

from stages.memory.entries import LogSums
from stages.memory.readers.reader import Reader


class Joint(Reader):
    """p(w) ∝ exp(log_z + log p(w)) + Σ_{j: v_j = w} exp(s_j/τ + α); the weight is α.

    The larger of both sides' scales is taken out first, so that large scores keep their digits.

    Source: "global normalization" of Grave et al. 2017 (neural cache, arXiv:1612.04426), equation 4;
    Zhong et al. 2022 (TRIME, arXiv:2205.12674), equations 5-6.

    Two tokens of score 0, so Z = 2; one entry holds the first, of score log 2: (1 + 2) / (2 + 2).

    >>> two = torch.tensor(2.0).log()
    >>> entry = LogSums(target=torch.tensor(0.0), total=torch.tensor(0.0), max_score=two)
    >>> Joint().read(torch.tensor(0.5).log(), two, entry, 0.0).exp()
    tensor(0.7500)
    """

    def _blend(self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor) -> Tensor:
        ahead = memory.max_score + weight - log_z
        model, entries = -ahead.clamp(min=0), ahead.clamp(max=0)
        target = torch.logaddexp(log_p + model, memory.target + entries)
        return target - torch.logaddexp(model, memory.total + entries)
