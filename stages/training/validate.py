"""Loss on the validation split."""

from collections.abc import Iterator

import numpy as np
import torch
from lightning_fabric import Fabric

from stages.encoding.encode import EncodedBlock, encode
from stages.examples.examples import Examples
from stages.methods.method import Method
from stages.models.language_model import LanguageModel, evaluating
from stages.training.ranks import mean_over_ranks

READ_TOGETHER = 8192
"""Tokens of a forward pass, in whole segments; memory in validation does not reach beyond them."""


def validate(fabric: Fabric, model: LanguageModel, method: Method, examples: Examples, segment_length: int) -> float:
    """Mean negative log-likelihood per token as the method reads, in nats: fp32, windows of the segment length.

    The ranks divide the windows, so the sum has every token once. A backbone that carries state reads
    one stream, which cannot be shared: every rank reads it all.
    """
    borders = np.concatenate(([0], np.cumsum(examples.lengths)))
    total = 0.0
    with torch.no_grad(), evaluating(model):
        for block in _blocks(fabric, model, examples, segment_length):
            own = np.arange(block.start, block.stop)
            starts = borders[np.searchsorted(borders, own, side="right") - 1] - block.start
            log_prob = method.log_prob(model, block, torch.from_numpy(starts.clip(0)).to(fabric.device))
            total -= float(log_prob.sum(dtype=torch.float64))
    # Every rank read the whole stream: the mean over ranks is already the sum.
    shares = 1 if model.config.carries_state else fabric.world_size
    return mean_over_ranks(fabric, total) * shares / int(examples.documents[-1])


def _blocks(fabric: Fabric, model: LanguageModel, examples: Examples, segment_length: int) -> Iterator[EncodedBlock]:
    """Encode the blocks of this rank; their borders do not depend on the number of ranks."""
    rank, ranks = (0, 1) if model.config.carries_state else (fabric.global_rank, fabric.world_size)
    size, total = max(1, READ_TOGETHER // segment_length) * segment_length, int(examples.documents[-1])
    state = None
    for start in range(rank * size, total, ranks * size):
        for block in encode(model, examples.blocks(start, min(start + size, total), size), state):
            yield block
            state = block.state
