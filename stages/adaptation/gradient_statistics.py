"""Root mean square of the gradients of training text, by which a rule scales its updates.

Source: Krause et al. 2018 (arXiv:1709.07432), section 4: statistics of training, gathered once.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.encoding.encode import SplitReader
from stages.examples.examples import Batch
from stages.methods.config import TRAIN
from stages.models.backbone import each
from stages.models.computing import autocast
from stages.models.language_model import LanguageModel

ROWS = 100
"""Maximum number of segments whose mean loss has one gradient, as in the authors' code."""
BATCH_TOKENS = 1 << 13
"""Maximum number of tokens of these segments together."""
MAX_TOKENS = 1 << 19
"""Maximum number of training tokens that are read, spread evenly over the split."""


class GradientStatistics(NamedTuple):
    """Statistics of a model's gradients."""

    rms: dict[str, Tensor]
    """Root mean square of the gradient of each weight, by the weight's name."""
    batches: int
    tokens: int


def measure_gradients(
    model: LanguageModel, reader: SplitReader, segment: int
) -> GradientStatistics:
    """Read training text once, at most `MAX_TOKENS` of it, in batches of segments.

    A model of windows reads windows of its context. Any other continues streams of segments.

    Args:
        segment: tokens of a segment.
    Raises: ValueError if the training split has no whole segment.
    """
    weights = dict(model.named_parameters())
    squares = {name: torch.zeros_like(one) for name, one in weights.items()}
    count = tokens = 0
    state = None
    for batch in _batches(model, reader, segment):
        with autocast(reader.device, reader.precision):
            encoding = model.read(batch.to(reader.device), state)
        loss = model.loss(batch.rows(encoding.hidden), batch.rows(batch.targets.to(reader.device)))
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        for square, gradient in zip(squares.values(), gradients, strict=True):
            if gradient is not None:
                square.addcmul_(gradient, gradient)
        state = each(encoding.state, Tensor.detach) if model.config.carries_state else None
        count += 1
        tokens += batch.targets.numel()
    if not count:
        raise ValueError("the training split has no whole segment")
    return GradientStatistics(
        {name: (square / count).sqrt_() for name, square in squares.items()}, count, tokens
    )


def _batches(model: LanguageModel, reader: SplitReader, segment: int) -> Iterator[Batch]:
    """Batches of segments; row b of a batch continues row b of the batch before."""
    cutting = model.config.cutting(reader.windows)
    if model.config.carries_state:
        cutting = cutting._replace(context=segment, stride=segment)
    examples = reader.corpus.examples(TRAIN, cutting)
    rows = min(ROWS, max(1, BATCH_TOKENS // cutting.context), examples.count)
    if not rows:
        return
    in_each = examples.count // rows
    steps = min(in_each, max(1, MAX_TOKENS // (rows * cutting.context)))
    for step in range(steps):
        yield examples.batch(np.arange(rows) * in_each + step)
