"""Source `external`: the nearest entries of a datastore, found through an index."""

import math

from torch import Tensor

from stages.memory.cells import Cells


def external_cells(ids: Tensor, scores: Tensor, values: Tensor) -> Cells:
    """The neighbours that a search found, as cells.

    Args:
        ids: int [n, k], rows of the datastore, best first; -1 where there is none.
        scores: float [n, k], similarity to the query, larger is nearer; -inf where the id is -1.
        values: int [N], the datastore's token of each row.
    """
    found = values[ids.clamp(min=0)]
    return Cells(scores, found.masked_fill_(ids < 0, -1))


def best_first(ids: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and scores [n, k] in falling order of score, ties as they stood."""
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    return ids.gather(-1, order), scores


def scores_from_distances(distances: Tensor, metric: str) -> Tensor:
    """Similarity [n, k] from what a search gives: minus the squared distance, or the product."""
    return -distances if metric == "l2" else distances


def scaled_dot(scores: Tensor, width: int) -> Tensor:
    """`scaled-dot` from `dot`: q·k / sqrt(d_k)."""
    return scores / math.sqrt(width)
