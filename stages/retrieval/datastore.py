"""A datastore as readings see it."""

from dataclasses import dataclass

from torch import Tensor

from stages.search.keys import StoredKeys


@dataclass(frozen=True)
class Datastore:
    """Its keys; values int32 [N + 1], of which the last is -1."""

    keys: StoredKeys
    values: Tensor
    metric: str
    """Metric of a search's distances: `l2` or `ip`."""
    lossless: bool
    """Whether the distances of a search equal those recomputed from the stored keys."""
