"""Loss on the validation split."""

from typing import Any

import torch
from lightning_fabric import Fabric

from stages.evaluation.encode import encode_range
from stages.models.language_model import LanguageModel
from stages.training.ranks import mean_over_ranks


def validate(fabric: Fabric, model: LanguageModel, ids: Any, eos: int, segment_length: int) -> float:
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
    )
    was_training = model.training
    model.eval()
    total = 0.0
    for block in blocks:
        log_prob, _ = model.log_prob(block.hidden, block.targets)
        total -= float(log_prob.sum(dtype=torch.float64))
    model.train(was_training)
    return mean_over_ranks(fabric, total) * ranks / len(ids)
