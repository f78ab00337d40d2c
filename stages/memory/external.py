"""Source `external`: the nearest entries of a datastore, found through an index."""

import math

from torch import Tensor

from stages.memory.cells import Cells
from stages.memory.positions import Positions


def external_cells(at: Positions) -> Cells:
    """The neighbours that a search found, as cells."""
    ids = at.neighbors
    if (ids[:, -1] < 0).any():
        ids = ids.masked_fill(ids < 0, len(at.neighbor_values) - 1)
    values = at.neighbor_values.index_select(0, ids.flatten())
    return Cells(at.neighbor_scores, values.view(ids.shape))


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
