"""The matcher: p(y | x) = softmax over r_y · h(x), of the labels that were learnt; at test prototypes stand for r_y."""

import torch
from torch import Tensor, nn

from stages.models.heads.classifier import STD, pooled
from stages.models.heads.matcher_settings import MatcherSettings


class Matcher(nn.Module):
    """Scores of labels, before the softmax: -inf for those that no task has had yet.

    In training a label is a weight, in evaluation mode its prototype, through which no gradient goes.

    Source: Han et al. 2020 (EMAR, aclanthology.org/2020.acl-main.573), section 3.
    """

    seen: Tensor
    prototypes: Tensor

    def __init__(self, width: int, settings: MatcherSettings) -> None:
        super().__init__()
        self.pool = settings.pool
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(settings.labels, width), std=STD))
        self.register_buffer("prototypes", torch.zeros(settings.labels, width))
        self.register_buffer("seen", torch.zeros(settings.labels, dtype=torch.bool))

    def represent(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """h(x), [B, d], of hidden states [B, L, d] and the positions that count, bool [B, L] (None: all)."""
        return pooled(hidden, mask, self.pool)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """[B, L, d] -> [B, |Y|]."""
        of_labels = self.weight if self.training else self.prototypes
        scores = nn.functional.linear(self.represent(hidden, mask), of_labels)
        return scores.masked_fill(~(self.seen | ~self.seen.any()), -torch.inf)
