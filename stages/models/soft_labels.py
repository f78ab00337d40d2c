"""Soft labels: a distribution over a few tokens for each position, in place of one target."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor


class SoftLabels(NamedTuple):
    """Shares of the labels of N positions that tokens take from the target, as m triples.

    The target of a position keeps what they leave of 1. All tensors have m elements.
    """

    rows: Int64[Tensor, " m"]
    """Position of each share, in ascending order."""
    tokens: Int64[Tensor, " m"]
    shares: Float[Tensor, " m"]
    """Positive; those of a position sum to 1 at most."""

    def select(self, chosen: Tensor) -> "SoftLabels":
        """The triples that are chosen, bool [m]."""
        return SoftLabels(self.rows[chosen], self.tokens[chosen], self.shares[chosen])

    def totals(self, positions: int) -> Tensor:
        """Share of each position's label that its target lost, [N]."""
        return self.shares.new_zeros(positions).index_add(0, self.rows, self.shares)


def moved_scores(
    hidden: Float[Tensor, "N d"],
    weight: Float[Tensor, "V d"],
    targets: Int64[Tensor, " N"],
    labels: SoftLabels,
) -> Float[Tensor, " N"]:
    """Σ_w s(w) (score of the target - score of w), for shares s of labels; in nats.

    Cross entropy with soft labels is that with the target, plus this: log Z is in both. So the
    labels are never spread over the vocabulary.

    Args:
        hidden, weight: their products are the scores.

    The scores are 3 and 1. Half of the label of token 0 moves to token 1:

    >>> labels = SoftLabels(torch.tensor([0]), torch.tensor([1]), torch.tensor([0.5]))
    >>> moved_scores(torch.ones(1, 1), torch.tensor([[3.0], [1.0]]), torch.tensor([0]), labels)
    tensor([1.])
    """
    positions = len(hidden)
    first = torch.searchsorted(labels.rows, torch.arange(positions, device=hidden.device))
    shares = labels.shares.to(weight.dtype)
    # Rows of the weight are summed where they lie: [m, d] would be the largest array of training.
    gained = F.embedding_bag(labels.tokens, weight, first, mode="sum", per_sample_weights=shares)
    lost = labels.totals(positions).to(weight.dtype)[:, None] * weight.index_select(0, targets)
    return ((lost - gained) * hidden).sum(-1)


def entropy_of_shares(labels: SoftLabels, positions: int) -> Float[Tensor, " {positions}"]:
    """-Σ_w q(w) log q(w) of each position in nats, where q are its shares, made to sum to 1.

    A position without shares has 0. Each token of a position appears once.

    >>> halves = SoftLabels(torch.tensor([1, 1]), torch.tensor([5, 7]), torch.tensor([0.2, 0.2]))
    >>> entropy_of_shares(halves, 2)
    tensor([0.0000, 0.6931])
    """
    q = labels.shares / labels.totals(positions)[labels.rows]
    terms = -q * q.log()
    return q.new_zeros(positions).index_add(0, labels.rows, terms)
