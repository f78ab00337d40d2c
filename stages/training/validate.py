"""Loss on the validation split."""

from typing import Any

import torch
from lightning_fabric import Fabric

from stages.evaluation.encode import EncodedBlock, encode_range
from stages.methods.method import Method
from stages.models.language_model import LanguageModel
from stages.training.ranks import mean_over_ranks

BATCH_TOKENS = 8192
"""Tokens read at a time, in whole segments."""


def validate(fabric: Fabric, model: LanguageModel, method: Method, ids: Any, eos: int, segment_length: int) -> float:
    """Mean negative log-likelihood a token, in nats: fp32, windows of the segment length, all ranks together.

    Each window is read by one rank, so the sum has every token once. A backbone that carries state
    reads one stream, which cannot be shared: every rank reads it all.
    """
    rank, ranks = (0, 1) if model.config.carries_state else (fabric.global_rank, fabric.world_size)
    segments = -(-len(ids) // segment_length)
    first, last = (segments * r // ranks for r in (rank, rank + 1))
    blocks = encode_range(
        model,
        ids,
        eos,
        first * segment_length,
        min(last * segment_length, len(ids)),
        context=segment_length,
        stride=segment_length,
        device=fabric.device,
        precision="fp32",
        batch_tokens=max(1, BATCH_TOKENS // segment_length) * segment_length,
    )
    was_training = model.training
    model.eval()
    with torch.no_grad():
        total = sum(-_log_prob(model, method, block, segment_length) for block in blocks)
    model.train(was_training)
    return mean_over_ranks(fabric, total) * ranks / len(ids)


def _log_prob(model: LanguageModel, method: Method, block: EncodedBlock, segment_length: int) -> float:
    """Log-probability of a block's tokens, in nats; it begins with a segment."""
    own = torch.arange(len(block.targets), device=block.targets.device)
    return float(method.log_prob(model, block, own - own % segment_length).sum(dtype=torch.float64))
