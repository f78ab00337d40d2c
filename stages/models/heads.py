"""Heads, which compute logits of labels or positions from the hidden states of an example."""

from typing import cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from stages.models.head_settings import (
    ClassifierSettings,
    LanguageSettings,
    MatcherSettings,
    ModulatedSettings,
    Pool,
    SpanSettings,
)

STD = 0.02
"""Standard deviation of initial weights, as in BERT."""


class Classifier(nn.Module):
    """p(y | x) = softmax(W h(x) + b), where h(x) pools the hidden states of an example."""

    def __init__(self, width: int, settings: ClassifierSettings) -> None:
        super().__init__()
        self.pool = settings.pool
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(settings.labels, width), std=STD))
        self.bias = nn.Parameter(torch.zeros(settings.labels))

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states [B, L, d] and the positions that count, bool [B, L] (None: all) -> scores
        [B, |Y|].
        """
        return nn.functional.linear(pooled(hidden, mask, self.pool), self.weight, self.bias)


def pooled(
    hidden: Float[Tensor, "B L d"], mask: Bool[Tensor, "B L"] | None, pool: Pool
) -> Float[Tensor, "B d"]:
    """Pool each example to one vector, over the positions in the mask (None: all).

    At least one position of each example must be in the mask, and padding must be at the end.

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


class Matcher(nn.Module):
    """p(y | x) = softmax of r_y · h(x) over the labels y seen so far; logits of labels that no task
    had yet are -inf.

    In training r_y is a weight. In evaluation mode it is the label's prototype, which gets no
    gradient.

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
        """Compute h(x), [B, d], from hidden states [B, L, d] and the positions that count, bool [B,
        L] (None: all).
        """
        return pooled(hidden, mask, self.pool)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states [B, L, d] and the positions that count, bool [B, L] (None: all) -> scores
        [B, |Y|].
        """
        # At test a prototype replaces the weight: the current encoder computed it from stored
        # examples.
        of_labels = self.weight if self.training else self.prototypes
        scores = nn.functional.linear(self.represent(hidden, mask), of_labels)
        # Before the first task no label was seen: then all stay, because a softmax over none is
        # undefined.
        return scores.masked_fill(~(self.seen | ~self.seen.any()), -torch.inf)


class Modulated(Classifier):
    """p(y | x) = softmax(W (h(x) ⊙ φ(x)) + b), with φ(x) = σ(W_2 ReLU(W_1 r(x))) and r(x) from a
    frozen encoder.

    Source: Holla et al. 2020 (arXiv:2009.04891), section 4.2, after ANML (Beaulieu et al. 2020).
    """

    def __init__(self, width: int, settings: ModulatedSettings) -> None:
        super().__init__(width, settings)
        self.modulator = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.Sigmoid()
        )

    def forward(self, hidden: Tensor, mask: Tensor | None, frozen: Tensor | None = None) -> Tensor:
        """`frozen`: hidden states of the frozen encoder, [B, L, d]."""
        representation = pooled(hidden, mask, self.pool)
        context = pooled(cast(Tensor, frozen), mask, self.pool)
        modulated = representation * self.modulator(context)
        return nn.functional.linear(modulated, self.weight, self.bias)


class Language(nn.Module):
    """Marks a model that answers in tokens; `stages.methods.stream.spelled` writes and reads them."""

    def __init__(self, width: int, settings: LanguageSettings) -> None:
        super().__init__()


class SpanHead(nn.Module):
    """p(start, stop | x) = softmax over positions i of w_start · f_i, times the softmax of w_stop ·
    f_i.

    The cross-entropy of its scores is the mean over start and stop: half of -log p(start, stop |
    x).

    Source: Devlin et al. 2019 (BERT, arXiv:1810.04805), sections 4.2 and 4.3; without bias, which
    cancels in a softmax.
    """

    def __init__(self, width: int, settings: SpanSettings) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(2, width), std=STD))

    def forward(
        self, hidden: Float[Tensor, "B L d"], mask: Bool[Tensor, "B L"] | None
    ) -> Float[Tensor, "B L 2"]:
        """Scores of each position as first and as last of the answer; `mask`: allowed positions
        (None: all).
        """
        scores = nn.functional.linear(hidden, self.weight)
        return scores if mask is None else scores.masked_fill(~mask[..., None], -torch.inf)


def best_spans(scores: Float[Tensor, "B L 2"]) -> Int64[Tensor, "B 2"]:
    """First and last position of the most probable answer, first ≤ last; (0, 0) means no answer.

    >>> best_spans(torch.tensor([[[0.0, 0.0], [1.0, 4.0], [3.0, 1.0]]])).tolist()
    [[1, 1]]
    """
    first, last = scores.log_softmax(1).unbind(2)  # [B, L] each

    # Best last position from each place on. A table of all pairs would be too large for long texts.
    from_end = last.flip(1)
    best_last = from_end.cummax(1).values.flip(1)
    best_last[:, 0] = last[:, 0]  # an answer that begins at 0 also ends there
    begin = (first + best_last).argmax(1, keepdim=True)

    # The last position, given the first
    positions = torch.arange(scores.shape[1], device=scores.device)
    is_behind = positions >= begin
    is_answer = (begin > 0) | (positions == 0)
    is_legal = is_behind & is_answer
    log_prob = first.gather(1, begin) + last
    log_prob = log_prob.masked_fill(~is_legal, -torch.inf)
    end = log_prob.argmax(1, keepdim=True)
    return torch.cat((begin, end), 1)
