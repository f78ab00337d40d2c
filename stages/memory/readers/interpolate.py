"""Reader `interpolate`: a weighted mean of the model's distribution and the memory's."""

import torch
from jaxtyping import Float
from torch import Tensor

from stages.memory.entries import LogSums
from stages.memory.readers.reader import Reader


def interpolate(
    log_p_lm: Float[Tensor, "*#shape"], log_p_mem: Float[Tensor, "*#shape"], lam: float | Float[Tensor, "*#shape"]
) -> Float[Tensor, "..."]:
    """Blend two next-token distributions: p = (1 - lam) p_lm + lam p_mem.

    Stays in log space: a token absent from the memory (-inf) costs exactly log(1 - lam), never NaN.

    Args:
        log_p_lm: the model alone, natural log, any shape that goes with `log_p_mem`.
        log_p_mem: the memory, natural log; -inf is allowed.
        lam: weight of the memory, 0 <= lam < 1; zero switches it off. A tensor broadcasts.
    Returns: natural log, dtype of the inputs, shape after broadcasting.
    Raises: ValueError if lam is outside [0, 1).
    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), section 2.

    The model gives two tokens a half each, the memory has seen the first alone; λ = 1/4:

    >>> model, memory = torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])
    >>> interpolate(model.log(), memory.log(), 0.25).exp()  # 3/4 · 1/2 + 1/4 · 1, and 3/4 · 1/2
    tensor([0.6250, 0.3750])
    """
    lam = torch.as_tensor(lam, dtype=log_p_lm.dtype, device=log_p_lm.device)
    if not ((lam >= 0) & (lam < 1)).all():
        raise ValueError("lambda, the weight of the memory, is not from 0 up to (without) 1")
    return torch.logaddexp(torch.log1p(-lam) + log_p_lm, lam.log() + log_p_mem)


class Interpolate(Reader):
    """The weight is λ; log Z is not needed."""

    def _blend(self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor) -> Tensor:
        return interpolate(log_p, memory.log_prob, weight)
