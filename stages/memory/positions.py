"""What the sources of memory may look at."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Positions:
    """n positions of a split that are about to read a memory.

    `neighbors` int64 [n, k]: rows of a datastore, best first; missing ones last, -1.
    `neighbor_scores` float [n, k]: their similarity, larger is nearer; -inf where missing.
    `neighbor_values` int [N + 1]: the datastore's token of each row, then -1.
    """

    neighbors: Tensor
    neighbor_scores: Tensor
    neighbor_values: Tensor
