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
    # Sum of the squares of each weight's gradients, one for each batch.
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    num_batches = 0
    num_tokens = 0
    state = None
    for batch in _batches(model, reader, segment):
        with autocast(reader.device, reader.precision):
            encoding = model.read(batch.to(reader.device), state)
        targets = batch.targets.to(reader.device)
        loss = model.loss(batch.rows(encoding.hidden), batch.rows(targets))
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        for square, gradient in zip(squares.values(), gradients, strict=True):
            # A weight that the loss does not reach has none, as if it were 0.
            if gradient is not None:
                square.addcmul_(gradient, gradient)

        # No gradient crosses batches.
        state = each(encoding.state, Tensor.detach) if model.config.carries_state else None
        num_batches += 1
        num_tokens += batch.targets.numel()

    if not num_batches:
        raise ValueError("the training split has no whole segment")
    rms = {name: (square / num_batches).sqrt_() for name, square in squares.items()}
    return GradientStatistics(rms, num_batches, num_tokens)


def _batches(model: LanguageModel, reader: SplitReader, segment: int) -> Iterator[Batch]:
    """Batches of segments; row b of a batch continues row b of the batch before."""
    cutting = model.config.cutting(reader.windows)
    if model.config.carries_state:
        cutting = cutting._replace(context=segment, stride=segment)
    examples = reader.corpus.examples(TRAIN, cutting)
    max_rows = max(1, BATCH_TOKENS // cutting.context)
    num_rows = min(ROWS, max_rows, examples.count)
    if not num_rows:
        return

    # The split is divided among the rows; each reads its part from the start.
    segments_per_row = examples.count // num_rows
    max_steps = max(1, MAX_TOKENS // (num_rows * cutting.context))
    first_segments = np.arange(num_rows) * segments_per_row
    for step in range(min(segments_per_row, max_steps)):
        yield examples.batch(first_segments + step)
