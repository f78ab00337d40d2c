"""Loss on the validation split."""

import numpy as np
import torch
from lightning_fabric import Fabric

from stages.encoding.encode import encode
from stages.examples.examples import Examples
from stages.methods.method import Method
from stages.models.language_model import LanguageModel, evaluating
from stages.training.ranks import mean_over_ranks

READ_TOGETHER = 8192
"""Tokens of a forward pass, in whole segments; memory in validation does not reach beyond them."""


def validate(
    fabric: Fabric, model: LanguageModel, method: Method, examples: Examples, segment_length: int
) -> float:
    """Mean negative log-likelihood per token as the method reads, in nats: fp32, windows of the
    segment length.

    The ranks divide the windows, so the sum has every token once. A backbone that carries state
    reads one stream, which cannot be shared: every rank reads it all.
    """
    borders = np.concatenate(([0], np.cumsum(examples.lengths)))
    total = 0.0
    state = None
    rank, ranks = (0, 1) if model.config.carries_state else (fabric.global_rank, fabric.world_size)
    # Borders of blocks do not depend on the number of ranks.
    size = max(1, READ_TOGETHER // segment_length) * segment_length
    end = int(examples.documents[-1])
    with torch.no_grad(), evaluating(model):
        for first in range(rank * size, end, ranks * size):
            for block in encode(model, examples.blocks(first, min(first + size, end), size), state):
                positions = np.arange(block.start, block.stop)
                starts = (
                    borders[np.searchsorted(borders, positions, side="right") - 1] - block.start
                )
                log_prob = method.log_prob(
                    model, block, torch.from_numpy(starts.clip(0)).to(fabric.device)
                )
                total -= float(log_prob.sum(dtype=torch.float64))
                state = block.state
    # If every rank read the whole stream, the mean over ranks is already the sum.
    return mean_over_ranks(fabric, total) * ranks / end
