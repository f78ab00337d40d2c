"""TRIME with external memory: segments that are alike share a batch, and each reads all others."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch import distributed as ranks

from stages.memory.in_batch.visible import others
from stages.methods.config import TrimeConfig, TrimeExtConfig
from stages.methods.method import BatchIndex, SideInputs
from stages.methods.segments import Segments
from stages.methods.trime import Memory, MemoryBatch, Trime
from stages.models.language_model import LanguageModel, State

DROPOUT = 1
"""What tells draws of the dropout of local memory from others of the same seed."""


@dataclass
class ExtBatch(MemoryBatch):
    """Segments, and whether they read the local part of memory."""

    local: bool


class TrimeExt(Trime):
    """All positions of the batch's other segments, on all processes, and mostly without local memory.

    Batches are neighbours in the packing, in another order each epoch; without a packing, any segments.
    Keys of other processes are constants. Whether local memory is dropped is drawn from (seed, number
    of the batch), the same for all processes and for a run that goes on.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.3 and algorithm 1.
    """

    settings: TrimeExtConfig

    def __init__(self, settings: TrimeConfig | None = None, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings or TrimeExtConfig(), side_inputs)

    def order(self, segments: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Batches of neighbours in the packing; which of them are cut apart moves from epoch to epoch."""
        if self.side_inputs.packing is None:
            return super().order(segments, size, seed, epoch)
        random = np.random.default_rng([seed, epoch])
        batches = segments // size
        first = random.integers(segments - batches * size + 1)
        chain = self.side_inputs.packing[first : first + batches * size].reshape(batches, size)
        return random.permutation(chain)

    def batch(self, split: Segments, segments: np.ndarray, index: BatchIndex) -> ExtBatch:
        batch = super().batch(split, segments, index)
        draw = np.random.default_rng([index.seed, index.number, DROPOUT]).random()
        return ExtBatch(batch.inputs, batch.targets, batch.plain, bool(draw >= self.settings.local_dropout))

    def memory(self, model: LanguageModel, batch: MemoryBatch, keys: Tensor, past: State) -> Memory:
        assert isinstance(batch, ExtBatch)
        length = batch.targets.shape[1]
        own = torch.arange(len(keys), device=keys.device)
        starts = own - own % length
        gathered, values = with_other_ranks(keys), with_other_ranks(batch.targets.flatten())
        visible = others(starts, starts + length, own, len(gathered), batch.local)
        return Memory(gathered, values, visible)

    def validated_from(self, starts: Tensor) -> Tensor:
        """Validation reads earlier segments beside the local part, for want of a datastore."""
        return torch.zeros_like(starts)


def with_other_ranks(tensor: Tensor) -> Tensor:
    """The tensor, then the same of every other process that trains along, without gradient; all must ask."""
    if not ranks.is_initialized() or ranks.get_world_size() == 1:
        return tensor
    gathered = [torch.empty_like(tensor) for _ in range(ranks.get_world_size())]
    ranks.all_gather(gathered, tensor.detach().contiguous())
    own = ranks.get_rank()
    return torch.cat((tensor, *gathered[:own], *gathered[own + 1 :]))
