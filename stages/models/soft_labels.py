"""Soft labels: a distribution over a few tokens for each position, in place of one target."""

from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from stages.models.cross_entropy import slope_of_cap, softmax_blocks


class SoftLabels(NamedTuple):
    """Labels of N positions, as m triples; all tensors have m elements.

    A token may come several times at a position: its shares are added.
    """

    rows: Int64[Tensor, " m"]
    """Position of each share, in ascending order."""
    tokens: Int64[Tensor, " m"]
    shares: Float[Tensor, " m"]
    """Positive."""

    def select(self, chosen: Tensor) -> "SoftLabels":
        """The triples that are chosen, bool [m]."""
        return SoftLabels(self.rows[chosen], self.tokens[chosen], self.shares[chosen])

    def totals(self, positions: int) -> Tensor:
        """Sum of each position's shares, [N]."""
        return self.shares.new_zeros(positions).index_add(0, self.rows, self.shares)


def linear_soft_cross_entropy(
    hidden: Float[Tensor, "N d"],
    weight: Float[Tensor, "V d"],
    labels: SoftLabels,
    cap: float | None = None,
) -> Float[Tensor, ""]:
    """Sum over positions of -Σ_w s(w) log p(w), in nats, where p = softmax(hidden @ weight.T).

    Positions are processed in blocks, as in `linear_cross_entropy`, and gradients are computed with
    the loss. Labels are never spread over the vocabulary: they meet a block of scores, which is in
    memory anyway.

    Args:
        weight: of the same dtype as the hidden states.
        labels: shares s(w); those of a position need not sum to 1.
        cap: c; scores become c tanh(score / c). None: they stay as they are.
    Returns: scalar of hidden's dtype; 0 without labels.

    One position, four tokens with equal scores, so each has log p = −log 4. Two tokens have a share
    of 1/4 each, so the loss is 2 · 1/4 · log 4:

    >>> labels = SoftLabels(torch.tensor([0, 0]), torch.tensor([1, 3]), torch.tensor([0.25, 0.25]))
    >>> linear_soft_cross_entropy(torch.zeros(1, 1), torch.ones(4, 1), labels)
    tensor(0.6931)
    """
    return _SoftCrossEntropy.apply(hidden, weight, cap, *labels)  # type: ignore[no-untyped-call]


NARROW = 16
"""Below this width the time of a product is that of reading the scores, on a CPU."""
NARROW_SCORES = 1 << 19
"""Scores in a block of narrow products: so few stay in the cache."""


class _Gradients:
    """Gradients with respect to hidden states [N, d] and weight [V, d], summed block by block.

    Narrow ones are held transposed: the products are then four times as fast on a CPU.
    """

    def __init__(self, hidden: Tensor, weight: Tensor, weight_learns: bool) -> None:
        self.is_transposed = weight.shape[1] < NARROW and weight.device.type == "cpu"
        self._weight_learns = weight_learns
        self._hidden = hidden.new_zeros(hidden.T.shape if self.is_transposed else hidden.shape)
        self._weight = weight.new_zeros(weight.T.shape if self.is_transposed else weight.shape)
        self._inputs = (hidden, weight)

    @property
    def sums(self) -> tuple[Tensor, Tensor | None]:
        """The gradients, [N, d] and [V, d]; None: the weight does not learn."""
        hidden = self._hidden.T if self.is_transposed else self._hidden
        weight = self._weight.T if self.is_transposed else self._weight
        return hidden, weight if self._weight_learns else None

    def add(self, rows: slice, excess: Tensor, totals: Tensor) -> None:
        """Add those of a block, where the gradient of its scores is totals [n] · excess [n, V]."""
        hidden, weight = self._inputs
        if self.is_transposed:
            self._hidden[:, rows] = torch.mm(weight.T, excess.T) * totals
        else:
            self._hidden[rows] = torch.mm(excess, weight) * totals[:, None]
        if not self._weight_learns:
            return

        # The factors are applied to [n, d], which costs less than [n, V].
        scaled = hidden[rows] * totals[:, None]
        if self.is_transposed:
            self._weight.addmm_(scaled.T, excess)
        else:
            self._weight.addmm_(excess.T, scaled)


class _SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        cap: float | None,
        rows: Tensor,
        tokens: Tensor,
        shares: Tensor,
    ) -> Tensor:
        """-Σ s log p over all labels, a scalar.

        Args:
            hidden: [N, d].
            weight: [V, d].
            rows, tokens, shares: row, token and share of each label, [labels]; rows rise.
        """
        shares = shares.to(hidden.dtype)
        totals = SoftLabels(rows, tokens, shares).totals(len(hidden))
        relative = shares / totals[rows]
        vocab_size = len(weight)
        grads = _Gradients(hidden, weight, ctx.needs_input_grad[1])
        at_once = NARROW_SCORES if grads.is_transposed else None

        losses = []
        for block in softmax_blocks(hidden, weight, cap, at_once):
            # Labels of the block: rows rise, so they are consecutive.
            first_row = block.rows.start
            bounds = rows.new_tensor((first_row, block.rows.stop))
            inside = slice(*torch.searchsorted(rows, bounds).tolist())

            # Scores of a block lie one row behind the other.
            places = (rows[inside] - first_row) * vocab_size + tokens[inside]
            label_scores = block.scores.view(-1)[places]

            # -Σ s log p = Σ s log Z - Σ s score
            block_totals = totals[block.rows]
            sum_of_log_z = (block_totals * block.log_z).sum()
            losses.append(sum_of_log_z - shares[inside] @ label_scores)

            # The gradient of a score is total · (p - s / total).
            excess = block.probs
            excess.view(-1).index_add_(0, places, relative[inside], alpha=-1)
            if cap is not None:
                excess.mul_(slope_of_cap(block.scores, cap))
            grads.add(block.rows, excess, block_totals)
        ctx.save_for_backward(*grads.sums)
        return reduce(torch.add, losses) if losses else hidden.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden [N, d] and weight [V, d]."""
        # `forward` has computed the gradients of a loss, so only its own gradient is multiplied in.
        grad_hidden, grad_weight = ctx.saved_tensors
        if grad_weight is not None:
            grad_weight = grad_weight * grad_loss
        return grad_hidden * grad_loss, grad_weight, None, None, None, None
