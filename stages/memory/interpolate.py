"""Reader `interpolate`: a weighted mean of the model's distribution and the memory's."""

import torch
from torch import Tensor

from stages.memory.entries import LogSums


def interpolate(log_p_lm: Tensor, log_p_mem: Tensor, lam: float | Tensor) -> Tensor:
    """Blend two next-token distributions: p = (1 - lam) p_lm + lam p_mem.

    Stays in log space: a token absent from the memory (-inf) costs exactly log(1 - lam), never NaN.

    Args:
        log_p_lm: the model alone, natural log, any shape that goes with `log_p_mem`.
        log_p_mem: the memory, natural log; -inf is allowed.
        lam: weight of the memory, 0 <= lam < 1; zero switches it off. A tensor broadcasts.
    Returns: natural log, dtype of the inputs, shape after broadcasting.
    Raises: ValueError if lam is outside [0, 1).
    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), section 2.
    """
    lam = torch.as_tensor(lam, dtype=log_p_lm.dtype, device=log_p_lm.device)
    if not ((lam >= 0) & (lam < 1)).all():
        raise ValueError("lambda, the weight of the memory, is not from 0 up to (without) 1")
    return torch.logaddexp(torch.log1p(-lam) + log_p_lm, lam.log() + log_p_mem)


class Interpolate:
    """The reader as evaluation uses it: one hyperparameter, λ."""

    hyperparameter = "lambda"
    default_grid = (
        *(0.02, 0.05, 0.08, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25, 0.275, 0.3),
        *(0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 0.95),
    )

    @staticmethod
    def read(log_p: Tensor, log_z: Tensor, memory: LogSums, lam: float | Tensor) -> Tensor:
        """log p of the targets with the memory read; where the memory is empty, log_p as it was.

        Args:
            log_p: of the targets as it stands so far, [..., n], natural log.
            log_z: [n]; not needed by this reader.
            memory: of the targets, [..., n].
            lam: one weight, or weights that broadcast against [..., n].
        """
        return torch.where(memory.empty, log_p, interpolate(log_p, memory.log_prob, lam))
