"""Readers, which combine log-probabilities of tokens with the log-sums of a memory."""

from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from stages.memory.entries import LogSums, StoredTokens


class Reader(ABC):
    """Interface that adds a memory to a distribution. Works elementwise, so all shapes broadcast."""

    @final
    def read(self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor) -> Tensor:
        """log p of the targets with the memory read; where the memory is empty, `log_p` unchanged.

        Args:
            log_p: log-probabilities of the targets before this reading, [..., n], natural log.
            log_z: logsumexp of the vocabulary's scores, [n].
            memory: log-sums of the targets, [..., n].
            weight: one number, or a tensor that broadcasts against [..., n].
        """
        return torch.where(memory.empty, log_p, self._blend(log_p, log_z, memory, weight))

    @final
    def read_dense(
        self, log_p: Tensor, log_z: Tensor, memory: StoredTokens, weight: float | Tensor
    ) -> Tensor:
        """log p of every token with the memory read, [n, V].

        The probabilities of all tokens that the memory lacks change by the same factor.

        Args:
            log_p: log-probabilities of every token before this reading, [n, V], natural log.
            log_z: as for `read`.
            memory: log-sums of the tokens that it holds.
            weight: one number, or [n, 1].
        """
        sums = memory.log_sums
        log_z = log_z[:, None]

        # A token of probability 1 that the memory lacks shows the factor of all such tokens.
        no_entries = torch.full_like(sums.total, -torch.inf)
        absent = LogSums(no_entries, sums.total, sums.max_score)
        certain = log_p.new_zeros(len(log_p), 1)
        log_factor = self.read(certain, log_z, absent, weight)  # [n, 1]

        # The tokens that it holds are read one by one, [n, k].
        log_p_stored = log_p.gather(1, memory.tokens)
        stored = self.read(log_p_stored, log_z, sums, weight)
        return (log_p + log_factor).scatter_(1, memory.tokens, stored)

    @abstractmethod
    def _blend(
        self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor
    ) -> Tensor:
        """Combine as `read` does; values at empty memories are ignored. Must be linear in the
        token's probability.
        """


def interpolate(
    log_p_lm: Float[Tensor, "*#shape"],
    log_p_mem: Float[Tensor, "*#shape"],
    lam: float | Float[Tensor, "*#shape"],
) -> Float[Tensor, "..."]:
    """Blend two next-token distributions: p = (1 - lam) p_lm + lam p_mem.

    Computed in log space: a token absent from the memory (-inf) costs exactly log(1 - lam), and is
    never NaN.

    Args:
        log_p_lm: log-probability by the model, natural log; the shape broadcasts with `log_p_mem`.
        log_p_mem: log-probability by the memory, natural log; -inf is allowed.
        lam: weight of the memory, 0 <= lam < 1; 0 switches it off. A tensor broadcasts.
    Returns: natural log, dtype of the inputs, shape after broadcasting.
    Raises: ValueError if lam is outside [0, 1).
    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), section 2.

    The model gives 1/2 to each of two tokens, the memory has only seen the first; λ = 1/4:

    >>> model, memory = torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])
    >>> interpolate(model.log(), memory.log(), 0.25).exp()  # 3/4 · 1/2 + 1/4 · 1, and 3/4 · 1/2
    tensor([0.6250, 0.3750])
    """
    lam = torch.as_tensor(lam, dtype=log_p_lm.dtype, device=log_p_lm.device)
    is_legal = (lam >= 0) & (lam < 1)
    if not is_legal.all():
        raise ValueError("lambda, the weight of the memory, is not from 0 up to (without) 1")

    # log1p keeps the digits of a small λ.
    model_part = torch.log1p(-lam) + log_p_lm
    memory_part = lam.log() + log_p_mem
    return torch.logaddexp(model_part, memory_part)


class Interpolate(Reader):
    """Linear interpolation; the weight is λ, and log Z is not needed."""

    def _blend(
        self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor
    ) -> Tensor:
        return interpolate(log_p, memory.log_prob, weight)


class Joint(Reader):
    """p(w) ∝ exp(log_z + log p(w)) + Σ_{j: v_j = w} exp(s_j/τ + α); the weight is α.

    The larger scale of the two sides is subtracted first, so that large scores keep their digits.

    Source: "global normalization" of Grave et al. 2017 (neural cache, arXiv:1612.04426), equation
    4; Zhong et al. 2022 (TRIME, arXiv:2205.12674), equations 5-6.

    Two tokens have score 0, so Z = 2. One entry of score log 2 holds the first: (1 + 2) / (2 + 2).

    >>> two = torch.tensor(2.0).log()
    >>> entry = LogSums(target=torch.tensor(0.0), total=torch.tensor(0.0), max_score=two)
    >>> Joint().read(torch.tensor(0.5).log(), two, entry, 0.0).exp()
    tensor(0.7500)
    """

    def _blend(
        self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor
    ) -> Tensor:
        # The larger of the two scales is the new zero; the other side is shifted below it.
        lead = memory.max_score + weight - log_z
        model_shift = -lead.clamp(min=0)
        memory_shift = lead.clamp(max=0)
        target = torch.logaddexp(log_p + model_shift, memory.target + memory_shift)
        total = torch.logaddexp(model_shift, memory.total + memory_shift)
        return target - total
