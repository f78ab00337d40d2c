"""TRIME with external memory: segments that are alike share a batch, and each reads all others."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch import distributed as ranks

from stages.memory.in_batch.visible import others
from stages.methods import in_batch
from stages.methods.in_batch import Memory, MemoryBatch
from stages.methods.method import Batch, BatchIndex, BatchLayout, EncodedTokens, Method, ParameterGroup
from stages.methods.segments import Segments, shuffled_order
from stages.methods.trime_ext.config import TrimeExtConfig
from stages.models.backbone import State
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel

DROPOUT = 1
"""What tells draws of the dropout of local memory from others of the same seed."""


@dataclass
class ExtBatch(MemoryBatch):
    """Segments, and whether they read the local part of memory."""

    local: bool


class TrimeExt(Method[TrimeExtConfig]):
    """All positions of the batch's other segments, on all processes, and mostly without local memory.

    Batches are neighbours in the packing, in another order each epoch; without a packing, any segments.
    Keys of other processes are constants. Whether local memory is dropped is drawn from (seed, number
    of the batch), the same for all processes and for a run that goes on.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.3 and algorithm 1.
    """

    hints = in_batch.HINTS

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup(list(model.parameters()))]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def order(self, segments: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Batches of neighbours in the packing; which of them are cut apart moves from epoch to epoch."""
        if self.side_inputs.packing is None:
            return shuffled_order(segments, size, seed, epoch)
        random = np.random.default_rng([seed, epoch])
        batches = segments // size
        first = random.integers(segments - batches * size + 1)
        chain = self.side_inputs.packing[first : first + batches * size].reshape(batches, size)
        return random.permutation(chain)

    def batch(self, split: Segments, segments: np.ndarray, index: BatchIndex) -> ExtBatch:
        batch = Batch.read(split, segments)
        draw = np.random.default_rng([index.seed, index.number, DROPOUT]).random()
        plain, local = in_batch.is_plain(self.settings, index), bool(draw >= self.settings.local_dropout)
        return ExtBatch(batch.inputs, batch.targets, plain, local)

    def loss(self, model: LanguageModel, batch: Batch, state: State) -> tuple[Tensor, State]:
        assert isinstance(batch, ExtBatch)
        return in_batch.batch_loss(self.settings, model, batch, partial(_of_others, batch)), None

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        """Validation reads earlier segments beside the local part, for want of a datastore."""
        return in_batch.joint_log_prob(self.settings, model, read, torch.zeros_like(starts))


def _of_others(batch: ExtBatch, keys: Tensor) -> Memory:
    """The other segments' positions, and with local memory the earlier ones of each one's own, of keys [B·L, d]."""
    length = batch.targets.shape[1]
    own = torch.arange(len(keys), device=keys.device)
    starts = own - own % length
    gathered, values = with_other_ranks(keys), with_other_ranks(batch.targets.flatten())
    visible = others(starts, starts + length, own, len(gathered), batch.local)
    return Memory(gathered, values, visible)


def with_other_ranks(tensor: Tensor) -> Tensor:
    """The tensor, then the same of every other process that trains along, without gradient; all must ask."""
    if not ranks.is_initialized() or ranks.get_world_size() == 1:
        return tensor
    gathered = [torch.empty_like(tensor) for _ in range(ranks.get_world_size())]
    ranks.all_gather(gathered, tensor.detach().contiguous())
    own = ranks.get_rank()
    return torch.cat((tensor, *gathered[:own], *gathered[own + 1 :]))
