"""TRIME: trained with the memory that a batch makes, of which `trime` itself reads the local part."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.memory.in_batch.log_sums import in_batch_log_sums
from stages.memory.in_batch.visible import Visible, earlier
from stages.methods.config import TrimeConfig
from stages.methods.method import Batch, BatchIndex, EncodedTokens, Method, SideInputs
from stages.methods.segments import Segments
from stages.models.language_model import LanguageModel, State


@dataclass
class MemoryBatch(Batch):
    """Segments, and whether their loss is the plain one."""

    plain: bool


class Memory(NamedTuple):
    """Keys [K, d] with the token after each, int64 [K], and which of them each of the batch's positions reads."""

    keys: Tensor
    values: Tensor
    visible: Visible


class Trime(Method):
    """Minimizes -log p, p(w) ∝ exp(E_w·f) + Σ_{j: v_j = w} exp(q·k_j/(√d τ)): local memory.

    Validation reads local memory too. Other methods make another memory, and validate with another.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), equation 5 and section 4.1.
    """

    hints = "more updates with the plain loss (--set memory.warmup=…), "
    settings: TrimeConfig

    def __init__(self, settings: TrimeConfig | None = None, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self.settings = settings or TrimeConfig()

    def batch(self, split: Segments, segments: np.ndarray, index: BatchIndex) -> MemoryBatch:
        batch = super().batch(split, segments, index)
        return MemoryBatch(batch.inputs, batch.targets, self.is_plain(index))

    def is_plain(self, index: BatchIndex) -> bool:
        """Whether a batch belongs to the warm-up, whose loss is the plain one."""
        return index.done < self.settings.warmup

    def loss(self, model: LanguageModel, batch: Batch, state: State) -> tuple[Tensor, State]:
        assert isinstance(batch, MemoryBatch)
        encoding = model.encode(batch.inputs)
        return self.minimized(model, batch, encoding.hidden, encoding.key(self.key(model)), None), None

    def minimized(self, model: LanguageModel, batch: MemoryBatch, hidden: Tensor, keys: Tensor, past: State) -> Tensor:
        """The loss of a batch whose contexts are `hidden` and `keys`, [B, L, d] each."""
        targets = batch.targets.flatten()
        if batch.plain:
            return model.loss(hidden.flatten(0, 1), targets)
        queries = keys.flatten(0, 1)
        memory = self.memory(model, batch, queries if self.settings.backpropagate else queries.detach(), past)
        log_sums = in_batch_log_sums(queries, memory.keys, targets, memory.values, memory.visible, self._scale(keys))
        return model.joint_loss(hidden.flatten(0, 1), targets, *log_sums)

    def memory(self, model: LanguageModel, batch: MemoryBatch, keys: Tensor, past: State) -> Memory:
        """What the positions of a batch read, keys [B·L, d]; here the earlier ones of their own segment."""
        own = torch.arange(len(keys), device=keys.device)
        return Memory(keys, batch.targets.flatten(), earlier(own - own % batch.targets.shape[1], own))

    def key(self, model: LanguageModel) -> str:
        """The representation that memory is searched with."""
        return self.settings.key or model.config.keys[0]

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        log_p, log_z = model.log_prob(read.key("hidden"), read.targets)
        keys = read.key(self.key(model)).float()
        visible = earlier(self.validated_from(starts), torch.arange(len(keys), device=keys.device))
        target, total = in_batch_log_sums(keys, keys, read.targets, read.targets, visible, self._scale(keys))
        return torch.logaddexp(log_z + log_p, target) - torch.logaddexp(log_z, total)

    def validated_from(self, starts: Tensor) -> Tensor:
        """The first token whose key validation reads for each, where segments begin at `starts`; int64 [n]."""
        return starts

    def _scale(self, keys: Tensor) -> float:
        return 1 / (math.sqrt(keys.shape[-1]) * self.settings.temperature)
