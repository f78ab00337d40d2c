"""The scores of a range of tokens: by the model alone, and by each row of memory readings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from stages.encoding.probe import Observation


@dataclass(frozen=True)
class RowScores:
    """c counted tokens read by a row: columns of numbers a token, and `sums` over all of them.

    Columns: `log_p` [c] and `log_p_mem` [c, readings] in nats; `first_matches` [c], place of the first entry of the
    first reading that is right; `correct` [c], whether the target is the argmax, where last words count; `weights` [c]
    of the last reading, where it is another for each context.
    """

    columns: Mapping[str, Tensor]
    sums: Mapping[str, np.ndarray]

    @property
    def log_p(self) -> Tensor:
        return self.columns["log_p"]

    @property
    def log_p_mem(self) -> Tensor:
        return self.columns["log_p_mem"]


@dataclass(frozen=True)
class RangeScores:
    """A range of the scored split: c counted tokens by the model alone, and by each row.

    `targets` int64; columns of the model alone as of a row: `log_p` and `log_z` [c], float32, and `correct`.
    """

    targets: Tensor
    columns: Mapping[str, Tensor]
    rows: list[RowScores]
    seconds: list[float]
    """The model alone, then every row with all that it needs."""
    observations: Mapping[str, Observation] = field(default_factory=dict)
    """Observations of each probe, by its name."""

    @property
    def log_p(self) -> Tensor:
        return self.columns["log_p"]

    def nll(self) -> list[np.ndarray]:
        """Negative log-likelihoods of the counted tokens, float64 [c]: of the model alone, and of each row."""
        each = [self.log_p, *(row.log_p for row in self.rows)]
        return [-log_p.double().cpu().numpy() for log_p in each]
