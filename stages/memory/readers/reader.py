"""The protocol of readers: from log-sums of a memory to log-probabilities of tokens."""

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from stages.memory.entries import LogSums


class Reader(ABC):
    """Puts a memory on top of a distribution. Elementwise, so that all shapes broadcast."""

    @final
    def read(self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor) -> Tensor:
        """log p of the targets with the memory read; where the memory is empty, log_p as it was.

        Args:
            log_p: of the targets as it stands so far, [..., n], natural log.
            log_z: log of the sum of exp of the vocabulary's scores, [n].
            memory: of the targets, [..., n].
            weight: one number, or numbers that broadcast against [..., n].
        """
        return torch.where(memory.empty, log_p, self._blend(log_p, log_z, memory, weight))

    @final
    def read_dense(self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor) -> Tensor:
        """log p of every token with the memory read, [n, V].

        Args:
            log_p: of every token as it stands so far, [n, V], natural log.
            log_z: as for `read`.
            memory: of every token, as `dense_log_sums` gives it.
        """
        return self.read(log_p, log_z[:, None], memory, weight)

    @abstractmethod
    def _blend(self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor) -> Tensor:
        """As `read`; what is given for empty memories is not used."""
