"""TRIME with local memory: each position reads the earlier ones of its own segment."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from stages.examples.examples import Batch, Examples
from stages.examples.orders import shuffled_order
from stages.memory.in_batch.visible import earlier
from stages.methods import in_batch
from stages.methods.in_batch import Memory, MemoryBatch
from stages.methods.method import BatchIndex, BatchLayout, Carried, EncodedTokens, Method, ParameterGroup
from stages.methods.trime.config import TrimeConfig
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel


class Trime(Method[TrimeConfig]):
    """Minimizes the joint loss of local memory; validation reads that too.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.1.
    """

    hints = in_batch.HINTS

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup(list(model.parameters()))]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def order(self, count: int, size: int, seed: int, epoch: int) -> np.ndarray:
        return shuffled_order(count, size, seed, epoch)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> MemoryBatch:
        return MemoryBatch.of(examples.batch(which), plain=in_batch.is_plain(self.settings, index))

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        assert isinstance(batch, MemoryBatch)
        return in_batch.batch_loss(self.settings, model, batch, partial(_local, batch)), Carried()

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        return in_batch.joint_log_prob(self.settings, model, read, starts)


def _local(batch: Batch, keys: Tensor) -> Memory:
    """The earlier positions of each one's own segment, of keys [B·L, d]."""
    own = torch.arange(len(keys), device=keys.device)
    return Memory(keys, batch.targets.flatten(), earlier(own - own % batch.targets.shape[1], own))
