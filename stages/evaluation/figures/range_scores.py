"""The scores of a range of tokens: by the model alone, and by each row of memory readings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from stages.encoding.probe import Observation
from stages.memory.search_gate import SearchGate
from stages.memory.small_network import SmallNetwork
from stages.memory.weight_network import WeightNetwork
from stages.retrieval.grids import Point, ReadingGrid


@dataclass(frozen=True)
class RowSettings:
    """Settings of a row: a point for each reading; for a lone one also a point for each cut-off.

    `network`: gives the last reading's weight, in place of its point's, where that is learned. `gains`: predicts what
    a lone one gains, of which perplexity is reported where it is read at or above each of the `thresholds` alone;
    `gate`: where it is searched for, None for everywhere.
    """

    grids: Sequence[ReadingGrid]
    points: Sequence[Point]
    by_cutoff: Sequence[Point]
    network: WeightNetwork | None = None
    gains: SmallNetwork | None = None
    thresholds: Sequence[float] = ()
    gate: SearchGate | None = None


@dataclass(frozen=True)
class RowScores:
    """c counted tokens read by a row.

    `log_p` [c] and `log_p_mem` [c, readings] in nats; `nll_by_cutoff`: sums over all of them;
    `first_matches` [c]: place of the first entry of the first reading that is right;
    `correct` bool [c]: whether no token is likelier, None if that was not asked for; `weights` [c]: of the last
    reading, None where it is one for all; `by_gain` [thresholds, 2]: tokens at or above each, and nats, None where no
    gains are predicted.
    """

    log_p: Tensor
    log_p_mem: Tensor
    nll_by_cutoff: np.ndarray
    first_matches: Tensor
    correct: Tensor | None
    weights: Tensor | None = None
    by_gain: np.ndarray | None = None

    @classmethod
    def of_nothing(cls, readings: int, cutoffs: int, like: Tensor, with_correct: bool) -> "RowScores":
        """The scores of no token, on the device of `like`."""
        return cls(
            log_p=like.new_empty(0),
            log_p_mem=like.new_empty(0, readings),
            nll_by_cutoff=np.zeros(cutoffs),
            first_matches=like.new_empty(0, dtype=torch.int64),
            correct=like.new_empty(0, dtype=torch.bool) if with_correct else None,
        )

    @classmethod
    def joined(cls, parts: Sequence["RowScores"]) -> "RowScores":
        """The scores of tokens that follow each other."""
        correct = [part.correct for part in parts if part.correct is not None]
        weights = [part.weights for part in parts if part.weights is not None]
        by_gain = [part.by_gain for part in parts if part.by_gain is not None]
        return cls(
            torch.cat([part.log_p for part in parts]),
            torch.cat([part.log_p_mem for part in parts]),
            np.sum([part.nll_by_cutoff for part in parts], axis=0),
            torch.cat([part.first_matches for part in parts]),
            torch.cat(correct) if correct else None,
            torch.cat(weights) if weights else None,
            np.sum(by_gain, axis=0) if by_gain else None,
        )


@dataclass(frozen=True)
class RangeScores:
    """A range of the scored split: c counted tokens by the model alone, and by each row.

    `targets` int64, `log_p` and `log_z` float32, `correct` bool or None: all [c], of the model alone.
    """

    targets: Tensor
    log_p: Tensor
    log_z: Tensor
    correct: Tensor | None
    rows: list[RowScores]
    seconds: list[float]
    """The model alone, then every row with all that it needs."""
    observations: Mapping[str, Observation] = field(default_factory=dict)
    """Observations of each probe, by its name."""

    def nll(self) -> list[np.ndarray]:
        """Negative log-likelihoods of the counted tokens, float64 [c]: of the model alone, and of each row."""
        each = [self.log_p, *(row.log_p for row in self.rows)]
        return [-log_p.double().cpu().numpy() for log_p in each]


def summed(values: Tensor) -> float:
    """The sum in float64."""
    return float(values.sum(dtype=torch.float64))
