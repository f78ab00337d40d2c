"""TRIME with long memory: consecutive segments share a batch, and each reads those before it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.memory.in_batch.visible import earlier
from stages.methods.config import TrimeConfig, TrimeLongConfig
from stages.methods.method import Batch, BatchIndex, SideInputs
from stages.methods.segments import Segments
from stages.methods.trime import Memory, MemoryBatch, Trime
from stages.models.config import ModelConfig
from stages.models.language_model import LanguageModel, State


@dataclass
class LongBatch(MemoryBatch):
    """Segments, of which `back` int64 [B, L] tells how many positions before each long memory may reach."""

    back: Tensor


class TrimeLong(Trime):
    """Local memory, and all earlier positions of the m consecutive segments that a position belongs to.

    A backbone that carries state reads streams, one segment of each a batch: the m - 1 segments
    before are then memory as they were encoded, without gradient.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.2 and appendix E.
    """

    settings: TrimeLongConfig

    def __init__(self, settings: TrimeConfig | None = None, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings or TrimeLongConfig(), side_inputs)

    @property
    def consecutive(self) -> int:
        """m."""
        assert self.settings.consecutive is not None, "the stage fills it in"
        return self.settings.consecutive

    def order(self, segments: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Batches of whole runs of m consecutive segments; where runs begin moves from epoch to epoch."""
        runs = segments // self.consecutive
        first = np.random.default_rng([seed, epoch]).integers(segments % self.consecutive + 1)
        of_runs = super().order(runs, size // self.consecutive, seed, epoch)
        members = first + of_runs[..., None] * self.consecutive + np.arange(self.consecutive)
        return members.reshape(len(of_runs), -1)

    def carries_state(self, config: ModelConfig) -> bool:
        return config.carries_state

    def rows_together(self, config: ModelConfig) -> int:
        return 1 if config.carries_state else self.consecutive

    def batch(self, split: Segments, segments: np.ndarray, index: BatchIndex) -> LongBatch:
        batch = super().batch(split, segments, index)
        within = self.settings.scope == "document"
        back = split.back(segments) if within else np.full(batch.targets.shape, np.iinfo(np.int64).max)
        return LongBatch(batch.inputs, batch.targets, batch.plain, torch.from_numpy(back))

    def loss(self, model: LanguageModel, batch: Batch, state: State) -> tuple[Tensor, State]:
        """As `Trime.loss`; the state is the backbone's, then keys [B, P, d] and values [B, P] of the past."""
        assert isinstance(batch, LongBatch)
        past = state and state[-2:]
        encoding = model.encode(batch.inputs, state and (state[:-2] or None))
        keys = encoding.key(self.key(model))
        loss = self.minimized(model, batch, encoding.hidden, keys, past)
        if not self.carries_state(model.config):
            return loss, None
        return loss, (*(encoding.state or ()), *self._past(keys, batch.targets, past))

    def memory(self, model: LanguageModel, batch: MemoryBatch, keys: Tensor, past: State) -> Memory:
        assert isinstance(batch, LongBatch)
        length = batch.targets.shape[1]
        together = self.rows_together(model.config)
        chains = keys.unflatten(0, (-1, together * length))
        values = batch.targets.unflatten(0, (-1, together)).flatten(1, 2)
        before = 0 if past is None else past[0].shape[1]
        if past is not None:
            chains, values = torch.cat((past[0].to(keys.dtype), chains), 1), torch.cat((past[1], values), 1)
        place = torch.arange(before, chains.shape[1], device=keys.device)
        own = torch.arange(len(chains), device=keys.device)[:, None] * chains.shape[1] + place
        reach = torch.minimum(batch.back.view_as(own), place)
        local = (place - before) % length
        visible = earlier((own - torch.maximum(reach, local)).flatten(), own.flatten())
        return Memory(chains.flatten(0, 1), values.flatten(), visible)

    def validated_from(self, starts: Tensor) -> Tensor:
        """Validation reads all that is at hand."""
        return torch.zeros_like(starts)

    def _past(self, keys: Tensor, values: Tensor, past: State) -> tuple[Tensor, Tensor]:
        """What the next batch remembers: the last m - 1 segments of each row."""
        keys = keys.detach()
        length = keys.shape[1]
        if past is not None:
            keys, values = torch.cat((past[0].to(keys.dtype), keys), 1), torch.cat((past[1], values), 1)
        first = max(0, keys.shape[1] - (self.consecutive - 1) * length)
        return keys[:, first:], values[:, first:]
