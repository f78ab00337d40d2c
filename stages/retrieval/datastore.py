"""A datastore as readings see it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.lineage.rows import stored_keys
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

    @cached_property
    def token_counts(self) -> Tensor:
        """Occurrences of each token up to the largest that is stored, and 0 of one more, int64."""
        values = self.values[:-1]
        return values.bincount(minlength=int(values.max()) + 2)


def open_datastore(artifact: Artifact, metric: str, lossless: bool, device: torch.device) -> Datastore:
    """A datastore's keys, to be read when they are needed, and its values, in memory."""
    group: Any = artifact.zarr("datastore.zarr")
    values = np.append(np.asarray(group["values"][:]), np.int32(-1))
    return Datastore(stored_keys(artifact), torch.from_numpy(values).to(device), metric, lossless)
