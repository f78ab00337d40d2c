"""Linear layer and cross-entropy fused: the [tokens, vocabulary] matrix of scores is never in
memory as a whole.
"""

from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

BLOCK_SCORES = {"cpu": 1 << 23, "cuda": 1 << 27}
"""Number of scores in a block (4 bytes each); two blocks are in memory. In smaller blocks, products
are slower.
"""


class MemoryTerms(NamedTuple):
    """Terms of a joint softmax besides the vocabulary's scores; each float [N], in nats.

    `within`: log-probability of the target within the class that is scored; 0 if the target itself
    is scored.
    `target`, `total`: logsumexp of a memory's scores, over the entries that hold the target and
    over all;
    -inf where there are none.
    """

    within: Tensor
    target: Tensor
    total: Tensor


def linear_cross_entropy(
    hidden: Float[Tensor, "N d"],
    weight: Float[Tensor, "V d"],
    targets: Int64[Tensor, " N"],
    memory: MemoryTerms | None = None,
    cap: float | None = None,
) -> Float[Tensor, ""]:
    """Sum over tokens of -log p(target), in nats, where p = softmax(hidden @ weight.T).

    With a memory, p(w) ∝ exp(E_w·f) + Σ_{j: v_j = w} exp(s_j): Zhong et al. 2022 (TRIME,
    arXiv:2205.12674), equation 5. Tokens are processed in blocks. The forward pass also computes
    the gradients, while the scores of a block are available. So it needs the memory of one block,
    whatever the number of tokens.

    Args:
        weight: of the same dtype as the hidden states.
        targets: in 0 … V-1.
        memory: terms of a memory, of the same dtype; all of them get gradients. None: no memory.
        cap: c; scores become c tanh(score / c). None: they stay as they are.
    Returns: scalar of hidden's dtype; 0 for N = 0.

    Two targets in a vocabulary of four, with equal scores: 2 log 4.

    >>> linear_cross_entropy(torch.zeros(2, 1), torch.ones(4, 1), torch.tensor([0, 3]))
    tensor(2.7726)
    """
    return _LinearCrossEntropy.apply(hidden, weight, targets, cap, *(memory or (None,) * 3))  # type: ignore[no-untyped-call]


def linear_log_prob(
    hidden: Float[Tensor, "N d"],
    weight: Float[Tensor, "V d"],
    targets: Int64[Tensor, " N"],
    cap: float | None = None,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Log-probability of each target and the log-normalizer, both [N], in nats.

    If gradients are needed, the backward pass computes the scores of each block again.

    Args: as in `linear_cross_entropy`.

    The scores are log 2 and 0, so the first token has probability 2/3, and the normalizer is log 3.

    >>> log_p, log_z = linear_log_prob(torch.ones(1, 1), torch.tensor([[2.0], [1.0]]).log(), torch.tensor([0]))
    >>> log_p.exp(), log_z.exp()
    (tensor([0.6667]), tensor([3.]))
    """
    return _LinearLogProb.apply(hidden, weight, targets, cap)  # type: ignore[no-untyped-call]


def capped(scores: Tensor, cap: float | None) -> Tensor:
    """Soft cap of scores: c tanh(score / c), which stays within ± c; None: the scores themselves.

    >>> capped(torch.tensor([0.0, 1000.0]), cap=30.0)
    tensor([ 0., 30.])
    """
    return scores if cap is None else cap * (scores / cap).tanh()


def slope_of_cap(scores: Tensor, cap: float) -> Tensor:
    """Derivative 1 - (score / c)² of `capped`, from its results, which are overwritten.

    >>> slope_of_cap(torch.tensor([0.0, 30.0]), cap=30.0)
    tensor([1., 0.])
    """
    # The slope of c tanh(s / c) is 1 - tanh²(s / c).
    return scores.div_(cap).square_().neg_().add_(1)


def _blocks(tokens: int, weight: Tensor, scores: int | None = None) -> list[slice]:
    at_once = scores or BLOCK_SCORES.get(weight.device.type, 1 << 23)
    size = max(16, at_once // len(weight))
    return [slice(i, min(i + size, tokens)) for i in range(0, tokens, size)]


class SoftmaxBlock(NamedTuple):
    """Scores and probabilities [n, V] of a block of tokens, and the logsumexp of the scores [n]."""

    rows: slice
    scores: Tensor
    probs: Tensor
    log_z: Tensor


def softmax_blocks(
    hidden: Tensor, weight: Tensor, cap: float | None, at_once: int | None = None
) -> Iterator[SoftmaxBlock]:
    """Yield one block of tokens at a time; the next block overwrites it.

    Args:
        hidden: [N, d].
        weight: [V, d].
        at_once: scores of a block; None: `BLOCK_SCORES`.

    The normalizer is computed from the largest probability, which is at least 1/V. The target's may
    underflow.
    """
    blocks = _blocks(len(hidden), weight, at_once)
    max_rows = blocks[0].stop if blocks else 0
    vocab_size = len(weight)
    buffers = hidden.new_empty(2, max_rows, vocab_size)
    for rows in blocks:
        num_rows = rows.stop - rows.start
        scores, probs = buffers[:, :num_rows]
        # In place, because the system would map and zero a new [n, V] for every block.
        torch.mm(hidden[rows], weight.T, out=scores)
        if cap is not None:
            scores.copy_(capped(scores, cap))
        torch.softmax(scores, -1, out=probs)

        # log Z = score - log p, for any token
        log_z = scores.amax(-1) - probs.amax(-1).log()
        yield SoftmaxBlock(rows, scores, probs, log_z)


class _Gradients:
    """Gradients with respect to hidden states [N, d] and weight [V, d], summed block by block;
    None: not needed.

    Factors of rows are applied to [n, d], which costs less than applying them to [n, V].
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        cap: float | None,
        needed: tuple[bool, ...],
    ) -> None:
        self.inputs = (hidden, weight, targets)
        self.cap = cap
        self.hidden = torch.empty_like(hidden) if needed[0] else None
        self.weight = torch.zeros_like(weight) if needed[1] else None

    def add_plain(self, block: SoftmaxBlock) -> None:
        """Add the gradient of Σ logsumexp(scores) - score of the target. Overwrites the block.

        Makes few calls, because a GPU would wait for each of them.
        """
        if self.cap is not None:
            ones = torch.ones_like(block.log_z)
            return self.add(block, ones, -ones)

        hidden, weight, targets = self._rows(block)
        if self.hidden is not None:
            grad_hidden = torch.mm(block.probs, weight, out=self.hidden[block.rows])
            # The gradient of a target's score is a row of the weight, so no one-hot [n, V] is
            # needed.
            target_weights = weight.index_select(0, targets)
            grad_hidden.sub_(target_weights)
        if self.weight is not None:
            self.weight.addmm_(block.probs.T, hidden)
            self.weight.index_add_(0, targets, hidden, alpha=-1)

    def add(self, block: SoftmaxBlock, by_normalizer: Tensor, by_target: Tensor) -> None:
        """Add the gradient of Σ by_normalizer · logsumexp(scores) + by_target · score of the
        target.

        The factors are [n] each. Overwrites the block.
        """
        hidden, weight, targets = self._rows(block)
        if self.cap is not None:
            slope = slope_of_cap(block.scores, self.cap)
            block.probs.mul_(slope)
            target_slope = slope.gather(1, targets[:, None]).squeeze(1)
            by_target = by_target * target_slope

        normalizer_factor = by_normalizer[:, None]
        target_factor = by_target[:, None]
        if self.hidden is not None:
            grad_hidden = torch.mm(block.probs, weight, out=self.hidden[block.rows])
            target_weights = weight.index_select(0, targets)
            grad_hidden.mul_(normalizer_factor).addcmul_(target_factor, target_weights)
        if self.weight is not None:
            self.weight.addmm_(block.probs.T, hidden * normalizer_factor)
            self.weight.index_add_(0, targets, hidden * target_factor)

    def _rows(self, block: SoftmaxBlock) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states [n, d] of a block, the weight, and targets [n]."""
        hidden, weight, targets = self.inputs
        return hidden[block.rows], weight, targets[block.rows]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        cap: float | None,
        *memory_terms: Tensor | None,
    ) -> Tensor:
        """The sum of -log p of all targets, a scalar.

        Args:
            hidden: [N, d].
            weight: [V, d].
            targets: int64 [N].
            memory_terms: the fields of `MemoryTerms`, [N] each, or None three times.
        """
        # Gradients are computed here, while a block's scores are available: the backward pass only
        # scales them.
        grads = _Gradients(hidden, weight, targets, cap, ctx.needs_input_grad)
        memory: MemoryTerms | None = None
        grad_memory: MemoryTerms | None = None
        if memory_terms[0] is not None:
            memory = MemoryTerms(*memory_terms)  # type: ignore[arg-type]
            grad_memory = MemoryTerms(*map(torch.empty_like, memory))

        losses = []
        for block in softmax_blocks(hidden, weight, cap):
            rows = block.rows
            block_targets = targets[rows, None]
            target_scores = block.scores.gather(1, block_targets).squeeze(1)
            if memory is None or grad_memory is None:
                losses.append((block.log_z - target_scores).sum())
                grads.add_plain(block)
                continue

            memory_of_rows = MemoryTerms(*(term[rows] for term in memory))
            joint = _joint(target_scores, block.log_z, memory_of_rows)
            losses.append(joint.loss.sum())
            grads.add(block, joint.by_log_z, joint.by_target_score)
            for grad_term, grad in zip(grad_memory, joint.by_memory, strict=True):
                grad_term[rows] = grad
        ctx.save_for_backward(grads.hidden, grads.weight, *(grad_memory or (None,) * 3))
        return reduce(torch.add, losses) if losses else hidden.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden [N, d], weight [V, d] and the memory's terms, [N] each."""
        grads = [None if grad is None else grad * grad_loss for grad in ctx.saved_tensors]
        grad_hidden, grad_weight, *grad_memory = grads
        # targets and the cap have none
        return grad_hidden, grad_weight, None, None, *grad_memory


class _Joint(NamedTuple):
    """-log p of each target, and its derivatives with respect to what it is computed from."""

    loss: Tensor
    by_log_z: Tensor
    by_target_score: Tensor
    by_memory: MemoryTerms


def _joint(target_scores: Tensor, log_z: Tensor, memory: MemoryTerms) -> _Joint:
    """-log p of targets in a softmax over the vocabulary and a memory, all [n]."""
    model = target_scores + memory.within
    target = torch.logaddexp(model, memory.target)
    total = torch.logaddexp(log_z, memory.total)

    # Each derivative is the share of a term in the sum that it is part of.
    by_log_z = (log_z - total).exp()
    by_target_score = -(model - target).exp()
    by_memory = MemoryTerms(
        within=by_target_score,
        target=-(memory.target - target).exp(),
        total=(memory.total - total).exp(),
    )
    return _Joint(total - target, by_log_z, by_target_score, by_memory)


class _LinearLogProb(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, cap: float | None
    ) -> tuple[Tensor, Tensor]:
        """Log p of the targets [N] and log Z [N], from hidden states [N, d] and weight [V, d]."""
        log_prob = hidden.new_empty(len(targets))
        log_z = hidden.new_empty(len(targets))
        # [n, V] scores exist for one block of tokens at a time
        for rows in _blocks(len(targets), weight):
            scores = capped(hidden[rows] @ weight.T, cap)
            block_log_z = scores.logsumexp(-1)
            target_scores = scores.gather(1, targets[rows, None]).squeeze(1)
            log_z[rows] = block_log_z
            log_prob[rows] = target_scores - block_log_z

        ctx.save_for_backward(hidden, weight, targets)
        ctx.cap = cap
        return log_prob, log_z

    @staticmethod
    def backward(ctx: Any, grad_log_prob: Tensor, grad_log_z: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden [N, d] and weight [V, d], from those of the results, [N] each."""
        hidden, weight, targets = ctx.saved_tensors
        grads = _Gradients(hidden, weight, targets, ctx.cap, ctx.needs_input_grad)
        # log p is the target's score minus log Z: both gradients are sums over these two.
        by_normalizer = grad_log_z - grad_log_prob
        for block in softmax_blocks(hidden, weight, ctx.cap):
            grads.add(block, by_normalizer[block.rows], grad_log_prob[block.rows])
        return grads.hidden, grads.weight, None, None
