"""TRIME: one softmax over the vocabulary and a memory of keys that were made with the same weights.

Local memory is each position's own segment. Long memory continues into the segments before.
External memory is the other segments of the batch.

Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch import distributed as ranks

from stages.encoding.encode import EncodedBlock
from stages.examples.batching import shuffled_order
from stages.examples.examples import Batch, Examples
from stages.examples.windows import positions_back
from stages.memory.in_batch.log_sums import best_log_sums, in_batch_log_sums
from stages.memory.in_batch.visible import Visible, earlier, others
from stages.methods.method import BatchIndex, BatchLayout, Carried, Loss, Method
from stages.methods.settings import InBatchConfig, TrimeConfig, TrimeExtConfig, TrimeLongConfig
from stages.models.backbone import Encoding
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel

T = TypeVar("T", bound=InBatchConfig)


@dataclass(kw_only=True)
class MemoryBatch(Batch):
    """Segments, and whether their loss is the plain one."""

    plain: bool


class Memory(NamedTuple):
    """Keys [K, d], the token after each, int64 [K], and the keys that each position of the batch
    reads.
    """

    keys: Tensor
    values: Tensor
    visible: Visible


class InBatch(Method[T]):
    """A method that reads the memory of its own batch."""

    hints = "more updates with the plain loss (--set memory.warmup=…), "

    def is_plain(self, index: BatchIndex) -> bool:
        """Whether a batch belongs to the warm-up, whose loss is the plain one."""
        return index.done < self.settings.warmup

    def key_name(self, model: LanguageModel) -> str:
        """The representation that memory is searched with."""
        return self.settings.key or model.config.reads.keys[0]

    def joint_loss(
        self,
        model: LanguageModel,
        batch: MemoryBatch,
        encoding: Encoding,
        memory_of: Callable[[Tensor], Memory],
    ) -> Tensor:
        """Mean of -log p, p(w) ∝ exp(E_w·f) + Σ_{j: v_j = w} exp(q·k_j/(√d τ)), over a batch; a
        plain one has no sum.

        Args:
            encoding: f and q of the batch's contexts.
            memory_of: k and v, from keys [n, d] of the n tokens that count, with or without
            gradient.
        Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), equation 5.
        """
        hidden = batch.rows(encoding.hidden)
        targets = batch.rows(batch.targets)
        if batch.plain:
            return model.loss(hidden, targets)
        queries = batch.rows(encoding.key(self.key_name(model)))
        memory = memory_of(queries if self.settings.backpropagate else queries.detach())
        log_sums = self._log_sums(queries, memory.keys, targets, memory.values, memory.visible)
        return model.joint_loss(hidden, targets, *log_sums)

    def joint_log_prob(
        self, model: LanguageModel, read: EncodedBlock, first: Tensor, stop: Tensor | None = None
    ) -> Tensor:
        """log p of tokens [n]; each reads keys from position `first` [n] on.

        Args:
            stop: end of the keys that each reads, int64 [n]; None: the token itself.
        """
        log_p, log_z = model.log_prob(read.key("hidden"), read.targets)
        keys = read.key(self.key_name(model)).float()
        if stop is None:
            stop = torch.arange(len(keys), device=keys.device)
        visible = earlier(first, stop)
        target, total = self._log_sums(keys, keys, read.targets, read.targets, visible)

        # log p is normalized over the vocabulary alone: adding log_z brings both sides to one
        # scale.
        target_score = log_z + log_p
        return torch.logaddexp(target_score, target) - torch.logaddexp(log_z, total)

    def _log_sums(
        self, queries: Tensor, keys: Tensor, targets: Tensor, values: Tensor, visible: Visible
    ) -> tuple[Tensor, Tensor]:
        """Log-sums over the visible keys, or over the best of them if their number is set."""
        root_width = math.sqrt(queries.shape[-1])
        scale = 1 / (root_width * self.settings.temperature)
        k = getattr(self.settings, "k", None)
        if k:
            return best_log_sums(queries, keys, targets, values, visible, scale, k)
        return in_batch_log_sums(queries, keys, targets, values, visible, scale)


class Trime(InBatch[TrimeConfig]):
    """Local memory: each position reads the earlier ones of its own segment; validation reads that
    too.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.1.
    """

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> MemoryBatch:
        return MemoryBatch.of(examples.batch(which), plain=self.is_plain(index))

    def loss(self, model: LanguageModel, batch: MemoryBatch, carried: Carried) -> Loss:
        targets = batch.targets

        def earlier_positions(keys: Tensor) -> Memory:
            positions = torch.arange(len(keys), device=keys.device)
            segment_starts = positions - positions % targets.shape[1]
            return Memory(keys, targets.flatten(), earlier(segment_starts, positions))

        encoding = model.read(batch)
        return Loss.of(self.joint_loss(model, batch, encoding, earlier_positions), encoding)

    def log_prob(self, model: LanguageModel, read: EncodedBlock, starts: Tensor) -> Tensor:
        return self.joint_log_prob(model, read, starts)


@dataclass(kw_only=True)
class LongBatch(MemoryBatch):
    """Segments; `back`, int64 [B, L], is the number of earlier positions that each position's long
    memory reaches.
    """

    back: Tensor


class TrimeLong(InBatch[TrimeLongConfig]):
    """Local memory, and all earlier positions of the m consecutive segments that a position belongs
    to.

    A backbone that carries state reads streams, one segment of each per batch. The m - 1 segments
    before are then memory as they were encoded, without gradient.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.2 and appendix E.
    """

    grouped_by = "memory.consecutive"
    carries_past = True

    @property
    def consecutive(self) -> int:
        """m."""
        assert self.settings.consecutive is not None, "the stage fills it in"
        return self.settings.consecutive

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return (
            BatchLayout(streams=True)
            if model.carries_state
            else BatchLayout(rows_together=self.consecutive)
        )

    def order(self, count: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Batches of whole runs of m consecutive segments; the offset of runs changes from epoch to
        epoch.
        """
        runs = count // self.consecutive
        first = np.random.default_rng([seed, epoch]).integers(count % self.consecutive + 1)
        of_runs = shuffled_order(runs, size // self.consecutive, seed, epoch)
        members = first + of_runs[..., None] * self.consecutive + np.arange(self.consecutive)
        return members.reshape(len(of_runs), -1)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> LongBatch:
        batch = examples.batch(which)
        if self.settings.scope == "document":
            back = positions_back(examples.documents, batch.places)
        else:
            back = np.full(batch.targets.shape, np.iinfo(np.int64).max)
        return LongBatch.of(batch, plain=self.is_plain(index), back=torch.from_numpy(back))

    def loss(self, model: LanguageModel, batch: LongBatch, carried: Carried) -> Loss:
        """Compute the loss; the carried past is the keys [B, P, d] and values [B, P] of the latest
        segments.
        """
        encoding = model.read(batch, carried.state)
        layout = self.layout(model.config)
        chained = partial(_chained, batch, past=carried.past, together=layout.rows_together)
        loss = self.joint_loss(model, batch, encoding, chained)
        if not layout.streams:
            return Loss.of(loss, encoding)
        keys = encoding.key(self.key_name(model))
        past = self._past(keys, batch.targets, carried.past)
        return Loss.of(loss, encoding, carried=Carried(encoding.state, past))

    def log_prob(self, model: LanguageModel, read: EncodedBlock, starts: Tensor) -> Tensor:
        """Log-probabilities in validation, which reads all earlier positions of the block."""
        return self.joint_log_prob(model, read, torch.zeros_like(starts))

    def _past(self, keys: Tensor, values: Tensor, past: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Keep the last m - 1 segments of each row for the next batch."""
        keys = keys.detach()
        num_kept = (self.consecutive - 1) * keys.shape[1]
        if past:
            keys, values = _behind(past, keys, values)
        first = max(0, keys.shape[1] - num_kept)
        return {"keys": keys[:, first:], "values": values[:, first:]}


def _behind(past: Mapping[str, Tensor], keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Keys [B, n, d] and values [B, n] of rows, after those of their past."""
    # Under autocast, keys of the past may have a higher precision than those of this batch: one
    # type for both.
    past_keys = past["keys"].to(keys.dtype)
    joined_keys = torch.cat((past_keys, keys), 1)
    joined_values = torch.cat((past["values"], values), 1)
    return joined_keys, joined_values


def _chained(batch: LongBatch, keys: Tensor, past: Mapping[str, Tensor], together: int) -> Memory:
    """Arrange keys [B·L, d] as memory of chains: `together` rows each, preceded by their own past."""
    length = batch.targets.shape[1]
    # [chains, together · L, d] and [chains, together · L]
    chain_keys = keys.unflatten(0, (-1, together * length))
    chain_values = batch.targets.unflatten(0, (-1, together)).flatten(1, 2)
    num_past = 0
    if past:
        num_past = past["values"].shape[1]
        chain_keys, chain_values = _behind(past, chain_keys, chain_values)

    # the place of each query in its chain, and its own key among those of all chains
    num_chains, chain_length = chain_values.shape
    places = torch.arange(num_past, chain_length, device=keys.device)
    chain_starts = chain_length * torch.arange(num_chains, device=keys.device)
    positions = chain_starts[:, None] + places

    # A segment is always read whole, even if a document began in it, as in local memory.
    document_reach = torch.minimum(batch.back.view_as(positions), places)
    segment_reach = (places - num_past) % length
    starts = positions - torch.maximum(document_reach, segment_reach)
    visible = earlier(starts.flatten(), positions.flatten())
    return Memory(chain_keys.flatten(0, 1), chain_values.flatten(), visible)


DROPOUT = 1
"""Constant that separates these random draws from others of the same seed."""


@dataclass(kw_only=True)
class ExtBatch(MemoryBatch):
    """Segments, and whether each reads the local part of memory, bool [B]."""

    local: Tensor


class TrimeExt(InBatch[TrimeExtConfig]):
    """External memory: all positions of the group's other segments, mostly without local memory.

    Groups are neighbours in the packing, in another order each epoch; without a packing, any
    segments. A batch of one group spans all processes; keys of other processes are constants.
    Whether a group drops local memory is drawn from (seed, number of the batch), also in a resumed
    run.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.3 and algorithm 1.
    """

    grouped_by = "memory.groups"

    @property
    def packing(self) -> np.ndarray | None:
        return self.side_inputs.get("batches")

    @property
    def groups(self) -> int:
        """Number of groups in a forward batch."""
        return self.settings.groups or 1

    def layout(self, model: BackboneConfig) -> BatchLayout:
        return BatchLayout()

    def order(self, count: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Batches of groups of neighbours in the packing; the borders of groups move from epoch to
        epoch.
        """
        if self.packing is None:
            return super().order(count, size, seed, epoch)
        random = np.random.default_rng([seed, epoch])
        num_batches = count // size
        num_read = num_batches * size

        # what is left over is before and behind the chain, by chance
        num_left = count - num_read
        first = random.integers(num_left + 1)
        chain = self.packing[first : first + num_read]
        groups = chain.reshape(num_batches * self.groups, -1)
        return random.permutation(groups).reshape(num_batches, size)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> ExtBatch:
        # All processes draw for all groups, so that draws do not depend on the number of processes.
        draws = np.random.default_rng([index.seed, index.number, DROPOUT]).random(self.groups)
        reads_local = draws[self._own_groups()] >= self.settings.local_dropout
        local = np.repeat(reads_local, len(which) // len(reads_local))
        return ExtBatch.of(
            examples.batch(which), plain=self.is_plain(index), local=torch.from_numpy(local)
        )

    def loss(self, model: LanguageModel, batch: ExtBatch, carried: Carried) -> Loss:
        encoding = model.read(batch)
        memory_of = partial(self._of_others, batch)
        return Loss.of(self.joint_loss(model, batch, encoding, memory_of), encoding)

    def log_prob(self, model: LanguageModel, read: EncodedBlock, starts: Tensor) -> Tensor:
        """Log-probabilities in validation: earlier segments, besides the local part, stand in for a
        datastore.
        """
        # Without local memory in training, a sentence never read its own past.
        alone = model.config.reads.source and self.settings.local_dropout == 1
        return self.joint_log_prob(model, read, torch.zeros_like(starts), starts if alone else None)

    def _own_groups(self) -> slice:
        """The groups of a batch that this process has segments of."""
        rank, processes = _rank_of()
        each = max(1, self.groups // processes)
        return slice(rank * each, (rank + 1) * each) if self.groups > 1 else slice(0, 1)

    def _of_others(self, batch: ExtBatch, keys: Tensor) -> Memory:
        """Memory from keys [N, d]: positions of other segments and, with local memory, earlier ones
        of the own.
        """
        position = torch.arange(len(keys), device=keys.device)
        segment, stop, local = _segments(batch)
        values = batch.rows(batch.targets)
        if self.groups == 1:
            keys = with_other_ranks(keys)
            values = with_other_ranks(values)
        num_keys = len(keys)
        visible = others(segment, stop, position, num_keys, local)

        # a position reads the keys of its own group
        here = self._own_groups()
        num_groups = here.stop - here.start
        group_size = num_keys // num_groups
        group_start = position - position % group_size
        return Memory(keys, values, visible.within(group_start, group_start + group_size))


def _segments(batch: ExtBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Begin and end of the segment of each of the batch's N tokens, and whether it reads its own
    segment.
    """
    mask = torch.ones_like(batch.targets, dtype=torch.bool) if batch.mask is None else batch.mask
    lengths = mask.sum(1)
    stops = lengths.cumsum(0)
    ends = stops.repeat_interleave(lengths)
    return ends - lengths.repeat_interleave(lengths), ends, batch.local.repeat_interleave(lengths)


def with_other_ranks(tensor: Tensor) -> Tensor:
    """The tensor, followed by those of all other processes, without gradient; every process must
    call this.
    """
    rank, processes = _rank_of()
    if processes == 1:
        return tensor
    gathered = [torch.empty_like(tensor) for _ in range(processes)]
    ranks.all_gather(gathered, tensor.detach().contiguous())
    # The own part comes first, so that positions within it stay valid among all.
    return torch.cat((tensor, *gathered[:rank], *gathered[rank + 1 :]))


def _rank_of() -> tuple[int, int]:
    """The number of this process, and the number of processes."""
    return (ranks.get_rank(), ranks.get_world_size()) if ranks.is_initialized() else (0, 1)
