"""The best of n² slots, found by looking at 2n sub-keys."""

from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class BestSlots(NamedTuple):
    """The k best slots of a query, the best first."""

    scores: Float[Tensor, "*queries k"]
    slots: Int64[Tensor, "*queries k"]
    """Slot a·n + b has the a-th key of the first half and the b-th of the second."""


def best_slots(first: Float[Tensor, "*queries n"], second: Float[Tensor, "*queries n"], k: int) -> BestSlots:
    """The k slots with the largest first_a + second_b, exactly; gradients go to their scores, not through the choice.

    Both halves of one of the k best are among the k best of their own. Of these pairs, the one of the i-th and the j-th
    best (from 1) has i·j - 1 others that are as good or better: it is looked at if i·j <= k: about k log k are.

    Args:
        k: at most n.
    Source: Lample et al. 2019 (arXiv:1907.05242), section 3.2.
    """
    with torch.no_grad():
        (best_first, a), (best_second, b) = first.topk(k), second.topk(k)
        i, j = (places.to(first.device) for places in _pairs(k))
        chosen = (best_first[..., i] + best_second[..., j]).topk(k).indices
        a, b = a[..., i].gather(-1, chosen), b[..., j].gather(-1, chosen)
    return BestSlots(first.gather(-1, a) + second.gather(-1, b), a * first.shape[-1] + b)


@cache
def _pairs(k: int) -> tuple[Tensor, Tensor]:
    """Ranks i and j, from 0, with (i + 1)(j + 1) <= k."""
    pairs = torch.tensor([(i, j) for i in range(k) for j in range(k // (i + 1))])
    return pairs[:, 0], pairs[:, 1]
