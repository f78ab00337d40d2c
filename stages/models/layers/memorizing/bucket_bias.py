"""A learned bias for each distance; far ones share."""

from functools import cache
from math import log

import torch
from jaxtyping import Float
from torch import Tensor, nn


class BucketBias(nn.Module):
    """Learned bias of a score, by head and by how far back a position lies.

    Source: Raffel et al. 2020 (T5, arXiv:1910.10683), section 2.1.
    """

    def __init__(self, heads: int, buckets: int, longest: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(buckets, heads))
        self.longest = longest

    def forward(self, queries: int, keys: int) -> Float[Tensor, "heads queries keys"]:
        """Biases of the last `queries` of `keys` positions for each of them; -inf for later positions."""
        device = self.bias.device
        own = torch.arange(keys - queries, keys, device=device)
        distance = own[:, None] - torch.arange(keys, device=device)
        number = bucket_numbers(keys, len(self.bias), self.longest).to(device)[distance.clamp(min=0)]
        return self.bias[number].permute(2, 0, 1).masked_fill(distance < 0, -torch.inf)


@cache
def bucket_numbers(distances: int, buckets: int, longest: int) -> Tensor:
    """The bucket of each distance from 0 on, int64 [distances]: half of them one each, then by their logarithm."""
    single = buckets // 2
    spread = (buckets - single) / log(max(longest / single, 1 + 1e-9))
    return torch.tensor(
        [n if n < single else min(buckets - 1, single + int(log(n / single) * spread)) for n in range(distances)]
    )
