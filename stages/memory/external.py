"""Source `external`: the nearest entries of a datastore, found by an index."""

import math
from dataclasses import dataclass

from jaxtyping import Float, Int64, Integer
from torch import Tensor

from stages.memory.entries import Entries


@dataclass(frozen=True)
class NearestRows:
    """Results of a search for n queries in a datastore of N rows.

    `ids` int64 [n, k]: rows, best first; missing ones are -1, at the end.
    `scores` float [n, k]: similarities, larger is nearer; -inf where missing.
    `values` int [N + 1]: the token of each row of the datastore, then -1.
    `counts` int [N + 1]: number of original rows that each row represents, if rows were merged;
    None: one each.
    """

    ids: Int64[Tensor, "n k"]
    scores: Float[Tensor, "n k"]
    values: Integer[Tensor, " rows"]
    counts: Integer[Tensor, " rows"] | None = None


def external_entries(neighbors: NearestRows) -> Entries:
    """Convert neighbours to entries [n, k].

    The rows of a datastore hold tokens 5, 6 and 7. A search found rows 2 and 0, and no third one:

    >>> import torch
    >>> ids, scores = torch.tensor([[2, 0, -1]]), torch.tensor([[1.0, 0.5, -torch.inf]])
    >>> external_entries(NearestRows(ids, scores, torch.tensor([5, 6, 7, -1]))).values
    tensor([[ 7,  5, -1]])
    """
    ids = neighbors.ids
    # Missing ones are at the end, so the last column shows whether there are any. The last value,
    # -1, is theirs.
    if (ids[:, -1] < 0).any():
        ids = ids.masked_fill(ids < 0, len(neighbors.values) - 1)

    values = neighbors.values.index_select(0, ids.flatten()).view(ids.shape)
    counts = None if neighbors.counts is None else neighbors.counts[ids].float()
    return Entries(neighbors.scores, values, counts=counts)


def best_first(
    ids: Int64[Tensor, "n k"], scores: Float[Tensor, "n k"]
) -> tuple[Int64[Tensor, "n k"], Float[Tensor, "n k"]]:
    """Sort ids and scores [n, k] by falling score; ties keep their order.

    >>> import torch
    >>> best_first(torch.tensor([[4, 8, 6]]), torch.tensor([[1.0, 3.0, 1.0]]))[0]
    tensor([[8, 4, 6]])
    """
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    return ids.gather(-1, order), scores


def scores_from_distances(
    distances: Float[Tensor, "*shape"], metric: str
) -> Float[Tensor, "*shape"]:
    """Similarities from the distances of a search: minus the squared distance for `l2`, else the
    inner product.

    >>> import torch
    >>> scores_from_distances(torch.tensor([4.0]), "l2"), scores_from_distances(torch.tensor([4.0]), "dot")
    (tensor([-4.]), tensor([4.]))
    """
    return -distances if metric == "l2" else distances


def scaled_dot(scores: Tensor, width: int) -> Tensor:
    """`scaled-dot` from `dot`: q·k / sqrt(d_k).

    >>> import torch
    >>> scaled_dot(torch.tensor([6.0]), width=4)
    tensor([3.])
    """
    return scores / math.sqrt(width)
