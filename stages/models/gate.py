"""Neighbours' tokens let into the hidden state before the softmax (SPALM)."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from stages.models.vocabulary import Vocabulary


class Gated(NamedTuple):
    """Hidden states z [N, d] that memory has entered, and the gates g that let it in, [N, d] or [N, 1]."""

    hidden: Tensor
    gate: Tensor


class Gate(nn.Module):
    """m = Σ_k softmax_k(y_k·h) y_k, g = σ(V h), z = (1 - g) ⊙ m + g ⊙ h; y_k are embeddings of the neighbours' tokens.

    Where a position has no neighbour, g = 1 and z = h. V starts at zero: half of each.

    Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557), section 2.3.
    """

    def __init__(self, width: int, kind: Literal["vector", "scalar"]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width if kind == "vector" else 1, width))

    def forward(self, hidden: Tensor, neighbors: Tensor, vocabulary: Vocabulary) -> Gated:
        """Hidden states h [N, d] and tokens of neighbours int64 [N, k], -1 where one is missing."""
        present = neighbors >= 0
        embedded = vocabulary.embed(neighbors.clamp(min=0))
        scores = torch.einsum("nkd,nd->nk", embedded, hidden).masked_fill(~present, -torch.inf)
        some = present.any(1, keepdim=True)
        weights = scores.masked_fill(~some, 0).softmax(1) * present
        memory = torch.einsum("nk,nkd->nd", weights, embedded)
        gate = torch.where(some, (hidden @ self.weight.T).sigmoid(), 1.0)
        return Gated(memory + gate * (hidden - memory), gate)
