"""Loss on the validation split."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from stages.encoding.encode import EncodedBlock, encode_range
from stages.methods.method import Method
from stages.models.language_model import LanguageModel
from stages.training.ranks import mean_over_ranks

READ_TOGETHER = 8192
"""Tokens, in whole segments, of a forward pass; memory that validation reads does not go beyond them."""


def validate(
    fabric: Fabric,
    model: LanguageModel,
    method: Method,
    ids: Any,
    eos: int,
    segment_length: int,
    documents: np.ndarray | None = None,
) -> float:
    """Mean negative log-likelihood a token as the method reads, in nats: fp32, windows of the segment length.

    The ranks share the windows, so the sum has every token once. A backbone that carries state reads
    one stream, which cannot be shared: every rank reads it all.

    Args:
        documents: int64 [D + 1], their offsets, for a model that reads documents; None: the split is one.
    """
    total = 0.0
    with evaluating(model), torch.no_grad():
        for block in _blocks(fabric, model, ids, eos, segment_length, documents):
            own = torch.arange(len(block.targets), device=fabric.device)
            log_prob = method.log_prob(model, block, own - own % segment_length)
            total -= float(log_prob.sum(dtype=torch.float64))
    shares = 1 if model.config.carries_state else fabric.world_size
    return mean_over_ranks(fabric, total) * shares / len(ids)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """All of a model in evaluation mode; afterwards each part is in the mode that it was in."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _blocks(
    fabric: Fabric, model: LanguageModel, ids: Any, eos: int, segment_length: int, documents: np.ndarray | None
) -> Iterator[EncodedBlock]:
    """Encode the blocks of this rank; their borders do not depend on the number of ranks."""
    rank, ranks = (0, 1) if model.config.carries_state else (fabric.global_rank, fabric.world_size)
    size = max(1, READ_TOGETHER // segment_length) * segment_length
    state = None
    for start in range(rank * size, len(ids), ranks * size):
        blocks = encode_range(
            model,
            ids,
            eos,
            start,
            min(start + size, len(ids)),
            context=segment_length,
            stride=segment_length,
            device=fabric.device,
            precision="fp32",
            batch_tokens=size,
            origins=documents if model.config.reads_documents else None,
            state=state,
        )
        for block in blocks:
            yield block
            state = block.state
