"""One softmax over the vocabulary and a memory of keys made with the same weights: what the TRIME methods share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stages.examples.examples import Batch
from stages.memory.in_batch.best import best_log_sums
from stages.memory.in_batch.log_sums import in_batch_log_sums
from stages.memory.in_batch.visible import Visible, earlier
from stages.methods.in_batch_config import InBatchConfig
from stages.methods.method import BatchIndex, EncodedTokens
from stages.models.language_model import LanguageModel

HINTS = "more updates with the plain loss (--set memory.warmup=…), "


@dataclass(kw_only=True)
class MemoryBatch(Batch):
    """Segments, and whether their loss is the plain one."""

    plain: bool


class Memory(NamedTuple):
    """Keys [K, d] with the token after each, int64 [K], and which of them each of the batch's positions reads."""

    keys: Tensor
    values: Tensor
    visible: Visible


def is_plain(settings: InBatchConfig, index: BatchIndex) -> bool:
    """Whether a batch belongs to the warm-up, whose loss is the plain one."""
    return index.done < settings.warmup


def plain_loss(model: LanguageModel, batch: Batch, hidden: Tensor) -> Tensor:
    """The loss without memory of a batch whose contexts are `hidden` [B, L, d]."""
    return model.loss(batch.rows(hidden), batch.rows(batch.targets))


def key_name(settings: InBatchConfig, model: LanguageModel) -> str:
    """The representation that memory is searched with."""
    return settings.key or model.config.reads.keys[0]


def readable(settings: InBatchConfig, keys: Tensor) -> Tensor:
    """Keys as the positions of a batch read them: with gradient or without."""
    return keys if settings.backpropagate else keys.detach()


def batch_loss(
    settings: InBatchConfig, model: LanguageModel, batch: MemoryBatch, memory_of: Callable[[Tensor], Memory]
) -> Tensor:
    """The loss of a batch of windows, the plain one or that with memory.

    Args:
        memory_of: what the batch reads, of the keys of its tokens, [B·L, d] where rows are not padded.
    """
    encoding = model.read(batch)
    if batch.plain:
        return plain_loss(model, batch, encoding.hidden)
    queries = batch.rows(encoding.key(key_name(settings, model)))
    return joint_loss(settings, model, batch, encoding.hidden, queries, memory_of(readable(settings, queries)))


def joint_loss(
    settings: InBatchConfig, model: LanguageModel, batch: Batch, hidden: Tensor, queries: Tensor, memory: Memory
) -> Tensor:
    """Mean of -log p, p(w) ∝ exp(E_w·f) + Σ_{j: v_j = w} exp(q·k_j/(√d τ)), over a batch.

    Args:
        hidden: f of the batch's contexts, [B, L, d].
        queries: q of the same, [B·L, d].
        memory: k and v.
    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), equation 5.
    """
    targets = batch.rows(batch.targets)
    log_sums = _log_sums(settings, queries, memory.keys, targets, memory.values, memory.visible)
    return model.joint_loss(batch.rows(hidden), targets, *log_sums)


def joint_log_prob(
    settings: InBatchConfig, model: LanguageModel, read: EncodedTokens, first: Tensor, stop: Tensor | None = None
) -> Tensor:
    """log p of tokens [n] that each read keys from the `first` [n] of them on.

    Args:
        stop: where what each reads ends, int64 [n]; None: at the token itself.
    """
    log_p, log_z = model.log_prob(read.key("hidden"), read.targets)
    keys = read.key(key_name(settings, model)).float()
    visible = earlier(first, torch.arange(len(keys), device=keys.device) if stop is None else stop)
    target, total = _log_sums(settings, keys, keys, read.targets, read.targets, visible)
    return torch.logaddexp(log_z + log_p, target) - torch.logaddexp(log_z, total)


def _log_sums(
    settings: InBatchConfig, queries: Tensor, keys: Tensor, targets: Tensor, values: Tensor, visible: Visible
) -> tuple[Tensor, Tensor]:
    """Log-sums over the visible keys, or over the best of them, if a number is set."""
    scale, best = _scale(settings, queries), getattr(settings, "k", None)
    if not best:
        return in_batch_log_sums(queries, keys, targets, values, visible, scale)
    return best_log_sums(queries, keys, targets, values, visible, scale, best)


def _scale(settings: InBatchConfig, keys: Tensor) -> float:
    return 1 / (math.sqrt(keys.shape[-1]) * settings.temperature)
