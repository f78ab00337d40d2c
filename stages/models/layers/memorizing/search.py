"""The entries of a memory that queries score highest, exactly, and what is read of them."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

SCORES = 1 << 24
"""Scores that are in memory together."""


class Retrieved(NamedTuple):
    """The k best memory entries of each head and query; fewer where fewer are visible."""

    read: Float[Tensor, "B heads n d_head"]
    """0 where a query may see no entry."""
    ages: Int64[Tensor, "B heads n k"]
    """How many positions an entry lies before the query, the best entry first."""
    scores: Float[Tensor, "B heads n k"]
    """-inf where there are fewer entries."""
    weights: Float[Tensor, "B heads n k"]


class Search(nn.Module):
    """Softmax over the k entries with the largest scores; they are consecutive positions, which end before the segment.

    Gradients go to queries through the scores of what was found; the memory and the choice have none.
    """

    def __init__(self, neighbors: int) -> None:
        super().__init__()
        self.neighbors = neighbors

    def forward(self, q: Tensor, keys: Tensor, values: Tensor, place: int, document_offset: Tensor | None) -> Retrieved:
        """Args:
        q: scaled queries [B, heads, n, d_head].
        keys, values: [B, heads, N, d_head], the oldest first.
        place: where the first query stands in its segment.
        document_offset: int64 [B, n], how far back a query may see; None: to the oldest.
        """
        chosen = self._best(q.detach(), keys, place, document_offset)
        scores = (_taken(keys, chosen) @ q[..., None])[..., 0]
        ages = self._ages(chosen, keys.shape[2], place)
        if document_offset is not None:
            scores = scores.masked_fill(ages > document_offset[:, None, :, None], -torch.inf)
        sees = scores.isfinite().any(-1, keepdim=True)
        weights = scores.masked_fill(~sees, 0.0).softmax(-1) * sees
        read = (weights[..., None, :] @ _taken(values, chosen))[..., 0, :]
        return Retrieved(read, ages, scores, weights)

    @torch.no_grad()
    def _best(self, q: Tensor, keys: Tensor, place: int, document_offset: Tensor | None) -> Tensor:
        """Places of the best entries in memory, int64 [B, heads, n, k], some queries at a time."""
        rows, heads, entries, _ = keys.shape
        step = max(1, SCORES // max(1, rows * heads * entries))
        number, found = torch.arange(entries, device=keys.device), []
        hidden = None if document_offset is None else self._hidden(document_offset, entries, place)
        for start in range(0, q.shape[2], step):
            part = slice(start, start + step)
            scores = q[:, :, part] @ keys.transpose(2, 3)
            if hidden is not None:
                scores.masked_fill_(number < hidden[:, None, part, None], -torch.inf)
            found.append(scores.topk(min(self.neighbors, entries)).indices)
        return torch.cat(found, 2)

    def _hidden(self, document_offset: Tensor, entries: int, place: int) -> Tensor | None:
        """How many of the oldest entries each query may not see, int64 [B, n]; None: all see all of them."""
        number = (
            entries + place + torch.arange(document_offset.shape[1], device=document_offset.device) - document_offset
        )
        return number if bool((number > 0).any()) else None

    def _ages(self, chosen: Tensor, entries: int, place: int) -> Tensor:
        """Distances of entries [B, heads, n, k] from n queries, the first of which is at `place` of the segment."""
        queries = place + torch.arange(chosen.shape[2], device=chosen.device)
        return entries - chosen + queries[:, None]


def _taken(memory: Tensor, chosen: Tensor) -> Tensor:
    """Entries [B, heads, N, d_head] at places [B, heads, n, k] -> [B, heads, n, k, d_head]."""
    rows = chosen.flatten(2)[..., None].expand(-1, -1, -1, memory.shape[3])
    return memory.gather(2, rows).unflatten(2, chosen.shape[2:])
