"""Reader `joint`: one softmax over the vocabulary's scores and the memory's."""

import torch
from torch import Tensor

from stages.memory.entries import LogSums


class Joint:
    """p(w) ∝ exp(log_z + log p(w)) + Σ_{j: v_j = w} exp(s_j/τ + α): one hyperparameter, α.

    Source: "global normalization" of Grave et al. 2017 (neural cache, arXiv:1612.04426), equation 4;
    Zhong et al. 2022 (TRIME, arXiv:2205.12674), equations 5-6.
    """

    hyperparameter = "alpha"
    default_grid = (
        *(-20.0, -16.0, -13.0, -10.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0),
        *(-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0),
    )

    @staticmethod
    def read(log_p: Tensor, log_z: Tensor, memory: LogSums, alpha: float | Tensor) -> Tensor:
        """log p of the targets with the memory read; where the memory is empty, log_p as it was.

        The larger of both sides' scales is taken out first, so that large scores keep their digits.

        Args:
            log_p: of the targets by the model alone, [..., n], natural log.
            log_z: log of the sum of exp of the vocabulary's scores, [n].
            memory: of the targets, [..., n].
            alpha: one bias, or biases that broadcast against [..., n].
        """
        ahead = memory.max_score + alpha - log_z
        model, entries = -ahead.clamp(min=0), ahead.clamp(max=0)
        target = torch.logaddexp(log_p + model, memory.target + entries)
        return torch.where(memory.empty, log_p, target - torch.logaddexp(model, memory.total + entries))
