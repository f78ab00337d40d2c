"""The classifier: p(y | x) = softmax(W h(x) + b), h(x) being a vector that pools the hidden states of an example."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.models.heads.classifier_settings import ClassifierSettings, Pool

STD = 0.02
"""Deviation of the weights at the start, as in BERT."""


class Classifier(nn.Module):
    """Scores of all labels, before the softmax."""

    def __init__(self, width: int, settings: ClassifierSettings) -> None:
        super().__init__()
        self.pool = settings.pool
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(settings.labels, width), std=STD))
        self.bias = nn.Parameter(torch.zeros(settings.labels))

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states [B, L, d] and the positions that count, bool [B, L] (None: all) -> scores [B, |Y|]."""
        return nn.functional.linear(pooled(hidden, mask, self.pool), self.weight, self.bias)


def pooled(hidden: Float[Tensor, "B L d"], mask: Bool[Tensor, "B L"] | None, pool: Pool) -> Float[Tensor, "B d"]:
    """One vector an example, of the positions that count (None: all); at least one does, and padding is at the end.

    >>> hidden = torch.tensor([[[1.0], [3.0], [9.0]]])
    >>> mask = torch.tensor([[True, True, False]])
    >>> [pooled(hidden, mask, pool).item() for pool in ("mean", "last", "first")]
    [2.0, 3.0, 1.0]
    """
    if mask is None:
        mask = hidden.new_ones(hidden.shape[:2], dtype=torch.bool)
    match pool:
        case "mean":
            counted = mask[..., None].to(hidden.dtype)
            return (hidden * counted).sum(1) / counted.sum(1)
        case "last":
            return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
        case "first":
            return hidden[:, 0]
