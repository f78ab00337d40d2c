"""Local adaptation: weights that are learnt from some documents for one example, and forgotten behind it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.examples.documents import LabelledBatch
from stages.models.language_model import LanguageModel
from stages.tasks.readings import Adaptation, Part


@contextmanager
def adapted(
    model: LanguageModel, batches: Iterable[LabelledBatch], settings: Adaptation, part: Part = "all"
) -> Iterator[None]:
    """Have a model adapted to the documents of each step; afterwards its weights are the bytes that they were.

    W̃ ← W̃ - η ∇((1 / K) Σ ℓ(W̃; x, y) + κ |W̃ - W|²), L times from W̃ = W: plain gradient descent without dropout.
    The gates of ANML-ER and its frozen copy do not adapt, nor do prototypes of EMAR.

    Source: de Masson d'Autume et al. 2019 (arXiv:1906.01076), equation 1, where the mean of the neighbours is weighted
    alike; Sprechmann et al. 2018 (MbPA, arXiv:1802.10542).
    """
    weights = [
        weight
        for name, weight in model.named_parameters()
        if name.startswith("head." if part == "head" else "") and not name.startswith(("frozen.", "head.modulator."))
    ]
    before = [weight.detach().clone() for weight in weights]
    try:
        for batch in batches:
            _step(model, weights, before, batch, settings)
        yield
    finally:
        with torch.no_grad():
            for weight, own in zip(weights, before, strict=True):
                weight.copy_(own)


def _step(
    model: LanguageModel, weights: list[nn.Parameter], before: list[Tensor], batch: LabelledBatch, settings: Adaptation
) -> None:
    loss = F.cross_entropy(model.label_scores(batch), batch.labels)
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    with torch.no_grad():
        for weight, own, gradient in zip(weights, before, gradients, strict=True):
            if gradient is not None:  # the vocabulary's softmax may have none, and then stays
                weight.sub_(gradient + 2 * settings.anchor * (weight - own), alpha=settings.lr)
