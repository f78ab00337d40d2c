"""TRIME with long memory: consecutive segments share a batch, and each reads those before it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.examples.examples import Batch, Examples
from stages.examples.orders import shuffled_order
from stages.examples.windows import positions_back
from stages.memory.in_batch.visible import earlier
from stages.methods import in_batch
from stages.methods.in_batch import Memory, MemoryBatch
from stages.methods.method import BatchIndex, BatchLayout, Carried, EncodedTokens, Method, ParameterGroup
from stages.methods.trime_long.config import TrimeLongConfig
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel


@dataclass(kw_only=True)
class LongBatch(MemoryBatch):
    """Segments, of which `back` int64 [B, L] tells how many positions before each long memory may reach."""

    back: Tensor


class TrimeLong(Method[TrimeLongConfig]):
    """Local memory, and all earlier positions of the m consecutive segments that a position belongs to.

    A backbone that carries state reads streams, one segment of each a batch: the m - 1 segments
    before are then memory as they were encoded, without gradient.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.2 and appendix E.
    """

    hints = in_batch.HINTS
    grouped_by = "memory.consecutive"
    carries_past = True

    @property
    def consecutive(self) -> int:
        """m."""
        assert self.settings.consecutive is not None, "the stage fills it in"
        return self.settings.consecutive

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup(list(model.parameters()))]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout(streams=True) if model.carries_state else BatchLayout(rows_together=self.consecutive)

    def order(self, count: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Batches of whole runs of m consecutive segments; where runs begin moves from epoch to epoch."""
        runs = count // self.consecutive
        first = np.random.default_rng([seed, epoch]).integers(count % self.consecutive + 1)
        of_runs = shuffled_order(runs, size // self.consecutive, seed, epoch)
        members = first + of_runs[..., None] * self.consecutive + np.arange(self.consecutive)
        return members.reshape(len(of_runs), -1)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> LongBatch:
        batch = examples.batch(which)
        within = self.settings.scope == "document"
        back = (
            positions_back(examples.documents, batch.places)
            if within
            else np.full(batch.targets.shape, np.iinfo(np.int64).max)
        )
        plain = in_batch.is_plain(self.settings, index)
        return LongBatch.of(batch, plain=plain, back=torch.from_numpy(back))

    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        """The past is the keys [B, P, d] and values [B, P] of the latest segments."""
        assert isinstance(batch, LongBatch)
        past = carried.past
        encoding = model.read(batch, carried.state)
        keys = encoding.key(in_batch.key_name(self.settings, model))
        layout = self.layout(model.config)
        if batch.plain:
            loss = in_batch.plain_loss(model, batch, encoding.hidden)
        else:
            queries = keys.flatten(0, 1)
            memory = _chained(batch, in_batch.readable(self.settings, queries), past, layout.rows_together)
            loss = in_batch.joint_loss(self.settings, model, batch, encoding.hidden, queries, memory)
        if not layout.streams:
            return loss, Carried()
        return loss, Carried(encoding.state, self._past(keys, batch.targets, past))

    def log_prob(self, model: LanguageModel, read: EncodedTokens, starts: Tensor) -> Tensor:
        """Validation reads all that is at hand."""
        return in_batch.joint_log_prob(self.settings, model, read, torch.zeros_like(starts))

    def _past(self, keys: Tensor, values: Tensor, past: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Keep the last m - 1 segments of each row for the next batch."""
        keys = keys.detach()
        length = keys.shape[1]
        if past:
            keys = torch.cat((past["keys"].to(keys.dtype), keys), 1)
            values = torch.cat((past["values"], values), 1)
        first = max(0, keys.shape[1] - (self.consecutive - 1) * length)
        return {"keys": keys[:, first:], "values": values[:, first:]}


def _chained(batch: LongBatch, keys: Tensor, past: Mapping[str, Tensor], together: int) -> Memory:
    """Arrange keys [B·L, d] as memory of chains: `together` rows each, preceded by their own past."""
    length = batch.targets.shape[1]
    chains = keys.unflatten(0, (-1, together * length))
    values = batch.targets.unflatten(0, (-1, together)).flatten(1, 2)
    before = past["values"].shape[1] if past else 0
    if past:
        chains = torch.cat((past["keys"].to(keys.dtype), chains), 1)
        values = torch.cat((past["values"], values), 1)
    place = torch.arange(before, chains.shape[1], device=keys.device)
    own = torch.arange(len(chains), device=keys.device)[:, None] * chains.shape[1] + place
    reach = torch.minimum(batch.back.view_as(own), place)
    local = (place - before) % length
    visible = earlier((own - torch.maximum(reach, local)).flatten(), own.flatten())
    return Memory(chains.flatten(0, 1), values.flatten(), visible)
