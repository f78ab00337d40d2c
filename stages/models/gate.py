"""Gate that adds neighbours' tokens to the hidden state before the softmax (SPALM)."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from stages.models.vocabulary import Vocabulary

BLOCK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Number of elements in a block of embeddings [n, k, d]; on a CPU a block of this size stays in the
cache.
"""


class Gated(NamedTuple):
    """Hidden states z [N, d] with memory added, and the gates g, [N, d] or [N, 1]."""

    hidden: Tensor
    gate: Tensor


class Gate(nn.Module):
    """m = Σ_k softmax_k(y_k·h) s y_k, g = σ(V h), z = (1 - g) ⊙ m + g ⊙ h; y_k embed the
    neighbours' tokens.

    With `scaled` values s is sqrt(d), as at the input of the first layer, so values are about as
    large as h. With `raw` values s is 1. A position without neighbours has m = 0, g = 1 and z = h.
    V starts at zero, so both sides get half of the weight. Embeddings are computed once for each
    token type among the neighbours, without dropout.

    Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557), section 2.3.
    """

    def __init__(
        self, width: int, kind: Literal["vector", "scalar"], values: Literal["scaled", "raw"]
    ) -> None:
        super().__init__()
        self.scale = width**0.5 if values == "scaled" else 1.0
        self.weight = nn.Parameter(torch.zeros(width if kind == "vector" else 1, width))

    def forward(
        self, hidden: Float[Tensor, "N d"], neighbors: Int64[Tensor, "N k"], vocabulary: Vocabulary
    ) -> Gated:
        """Gate tokens of neighbours, int64 [N, k], -1 where missing, into hidden states h [N, d]."""
        present = neighbors >= 0
        # each token is embedded once, however many neighbours have it
        types, rows = torch.unique(neighbors.clamp(min=0), return_inverse=True)
        embeddings = vocabulary.embed(types)
        memory = self.scale * attend(hidden, embeddings, rows, present)

        # without neighbours, the gate lets the hidden state through
        has_neighbor = present.any(1, keepdim=True)
        learned_gate = (hidden @ self.weight.T).sigmoid()
        gate = torch.where(has_neighbor, learned_gate, 1.0)
        return Gated(torch.lerp(memory, hidden, gate), gate)


def attend(
    hidden: Float[Tensor, "N d"],
    embeddings: Float[Tensor, "U d"],
    rows: Int64[Tensor, "N k"],
    present: Bool[Tensor, "N k"],
) -> Float[Tensor, "N d"]:
    """Σ_k softmax_k(y_k·h) y_k for each hidden state, [N, d]; 0 where no neighbour is present.

    Positions are processed in blocks. The backward pass gathers embeddings again. So the memory
    needed is one block [n, k, d], and the weights [N, k].

    Args:
        rows: index of the embedding y_k of each position's k-th neighbour, in 0 … U-1.
        present: neighbours that take part.

    A hidden state of 0 gives equal scores, so the result is the mean of the present embeddings:

    >>> embeddings, rows = torch.tensor([[2.0], [4.0], [9.0]]), torch.tensor([[0, 1, 2]])
    >>> attend(torch.zeros(1, 1), embeddings, rows, torch.tensor([[True, True, False]]))
    tensor([[3.]])
    """
    return _Attend.apply(hidden, embeddings, rows, present)  # type: ignore[no-untyped-call]


def _blocks(rows: Tensor, width: int) -> Iterator[slice]:
    size = max(1, BLOCK_ELEMENTS.get(rows.device.type, 1 << 18) // (rows.shape[1] * width))
    return (slice(start, start + size) for start in range(0, len(rows), size))


def _dot(vectors: Float[Tensor, "n k d"], others: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    """Inner products, [n, k, d] with [n, d] -> [n, k]; product and sum cost less than many small
    matrix products.
    """
    return (vectors * others[:, None]).sum(-1)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, embeddings: Tensor, rows: Tensor, present: Tensor
    ) -> Tensor:
        """Shapes: those of `attend`. Embeddings of neighbours exist for one block at a time."""
        memory = torch.empty_like(hidden)
        weights = hidden.new_empty(rows.shape)
        for block in _blocks(rows, hidden.shape[1]):
            near = F.embedding(rows[block], embeddings)  # [n, k, d]
            is_missing = ~present[block]
            scores = _dot(near, hidden[block]).masked_fill_(is_missing, -torch.inf)
            # a softmax over only -inf is NaN: without neighbours, all weights are 0
            block_weights = scores.softmax(1).masked_fill_(is_missing, 0)
            weights[block] = block_weights
            torch.bmm(block_weights[:, None], near, out=memory[block, None])
        ctx.save_for_backward(hidden, embeddings, rows, weights)
        return memory

    @staticmethod
    def backward(ctx: Any, grad_memory: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Gradients with respect to hidden states [N, d] and embeddings [U, d].

        Shapes in a block: near [n, k, d], weights and scores [n, k].
        """
        hidden, embeddings, rows, weights = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden)
        grad_embeddings = torch.zeros_like(embeddings)
        for block in _blocks(rows, hidden.shape[1]):
            near = F.embedding(rows[block], embeddings)
            block_weights = weights[block]
            block_grad = grad_memory[block]

            # A softmax is invariant to a constant added to all scores, so the weighted mean is
            # subtracted.
            grad_weights = _dot(near, block_grad)
            mean = (block_weights * grad_weights).sum(1, keepdim=True)
            grad_scores = block_weights * (grad_weights - mean)
            torch.bmm(grad_scores[:, None], near, out=grad_hidden[block, None])

            # Embeddings are not needed any more, so their buffer is reused for their gradients: one
            # term from the weighted sum, one from the scores.
            grad_near = torch.mul(block_weights[..., None], block_grad[:, None], out=near)
            grad_near.addcmul_(grad_scores[..., None], hidden[block, None])
            grad_embeddings.index_add_(0, rows[block].flatten(), grad_near.flatten(0, 1))
        return grad_hidden, grad_embeddings, None, None
