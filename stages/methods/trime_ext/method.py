"""TRIME with external memory: segments that are alike share a batch, and each reads all others."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch import distributed as ranks

from stages.examples.examples import Batch, Examples
from stages.examples.orders import shuffled_order
from stages.memory.in_batch.visible import others
from stages.methods import in_batch
from stages.methods.in_batch import Memory, MemoryBatch
from stages.methods.method import BatchIndex, BatchLayout, Carried, EncodedTokens, Method, ParameterGroup
from stages.methods.trime_ext.config import TrimeExtConfig
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel

DROPOUT = 1
"""Constant that separates these random draws from others of the same seed."""


@dataclass(kw_only=True)
class ExtBatch(MemoryBatch):
    """Segments, and whether each reads the local part of memory, bool [B]."""

    local: Tensor


class TrimeExt(Method[TrimeExtConfig]):
    """All positions of the group's other segments, and mostly without local memory.

    Groups are neighbours in the packing, in another order each epoch; without a packing, any segments. A batch
    that is one group is read on all processes, keys of the others being constants. Whether a group drops local
    memory is drawn from (seed, number of the batch), the same in a run that goes on.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.3 and algorithm 1.
    """

    hints = in_batch.HINTS
    grouped_by = "memory.groups"

    @property
    def groups(self) -> int:
        """Number of groups in a forward batch."""
        return self.settings.groups or 1

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup(list(model.parameters()))]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def order(self, count: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Batches of groups of neighbours in the packing; which of them are cut apart moves from epoch to epoch."""
        if self.side_inputs.packing is None:
            return shuffled_order(count, size, seed, epoch)
        random = np.random.default_rng([seed, epoch])
        batches = count // size
        first = random.integers(count - batches * size + 1)
        chain = self.side_inputs.packing[first : first + batches * size]
        return random.permutation(chain.reshape(batches * self.groups, -1)).reshape(batches, size)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> ExtBatch:
        draws = np.random.default_rng([index.seed, index.number, DROPOUT]).random(self.groups)
        own = draws[self._own_groups()]
        local = np.repeat(own >= self.settings.local_dropout, len(which) // len(own))
        plain = in_batch.is_plain(self.settings, index)
        return ExtBatch.of(examples.batch(which), plain=plain, local=torch.from_numpy(local))

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        assert isinstance(batch, ExtBatch)
        return in_batch.batch_loss(self.settings, model, batch, partial(self._of_others, batch)), Carried()

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        """Validation reads earlier segments beside the local part, for want of a datastore."""
        alone = (
            model.config.reads.source and self.settings.local_dropout == 1
        )  # then a sentence never read its own past
        return in_batch.joint_log_prob(self.settings, model, read, torch.zeros_like(starts), starts if alone else None)

    def _own_groups(self) -> slice:
        """Which groups of a batch this process has segments of."""
        rank, processes = _rank_of()
        each = max(1, self.groups // processes)
        return slice(rank * each, (rank + 1) * each) if self.groups > 1 else slice(0, 1)

    def _of_others(self, batch: ExtBatch, keys: Tensor) -> Memory:
        """The other segments' positions, and with local memory the earlier ones of each one's own, of keys [N, d]."""
        own = torch.arange(len(keys), device=keys.device)
        segment, stop, local = _segments(batch)
        values = batch.rows(batch.targets)
        if self.groups == 1:
            keys, values = with_other_ranks(keys), with_other_ranks(values)
        visible = others(segment, stop, own, len(keys), local)
        here = self._own_groups()
        size = len(keys) // (here.stop - here.start)
        group = own - own % size
        return Memory(keys, values, visible.within(group, group + size))


def _segments(batch: ExtBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Where the segment of each of the batch's N tokens begins and ends among them, and whether it is read itself."""
    mask = torch.ones_like(batch.targets, dtype=torch.bool) if batch.mask is None else batch.mask
    lengths = mask.sum(1)
    stops = lengths.cumsum(0)
    ends = stops.repeat_interleave(lengths)
    return ends - lengths.repeat_interleave(lengths), ends, batch.local.repeat_interleave(lengths)


def with_other_ranks(tensor: Tensor) -> Tensor:
    """The tensor, then the same of every other process that trains along, without gradient; all must ask."""
    own, processes = _rank_of()
    if processes == 1:
        return tensor
    gathered = [torch.empty_like(tensor) for _ in range(processes)]
    ranks.all_gather(gathered, tensor.detach().contiguous())
    return torch.cat((tensor, *gathered[:own], *gathered[own + 1 :]))


def _rank_of() -> tuple[int, int]:
    """The number of this process, and how many train along."""
    return (ranks.get_rank(), ranks.get_world_size()) if ranks.is_initialized() else (0, 1)
