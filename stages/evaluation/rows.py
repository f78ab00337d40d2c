"""Rows of the report's table: readings of memory on top of the model, and what each may be set to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.grids import (
    TEMPERATURE_FRACTIONS,
    ReadingGrid,
    Recalled,
    recall,
    score_spread,
)
from stages.evaluation.readings import doubling_cutoffs
from stages.evaluation.retrieval import Found
from stages.memory import READERS, SOURCES
from stages.memory.cells import Cells
from stages.memory.external import best_first, scaled_dot, scores_from_distances
from stages.memory.positions import Positions
from stages.memory.spec import Reading
from stages.search.distances import exact_distances
from stages.search.keys import StoredKeys

CHUNK_CELLS = 1 << 20
"""Cells read at a time: few enough to stay near the processor."""


@dataclass(frozen=True)
class Datastore:
    """What readings need of a datastore: its keys; values int32 [N + 1], of which the last is -1."""

    keys: StoredKeys
    values: Tensor
    metric: str
    """Of the distances that a search gives: `l2` or `ip`."""


@dataclass(frozen=True)
class ReadingPlan:
    """One reading of a row, all settled but what the grid decides."""

    reading: Reading
    recompute: bool
    """Whether scores are computed anew from the stored keys."""
    exact: bool
    """Whether scores are those of the stored keys, recomputed or not."""

    @property
    def distances(self) -> str:
        """What scores are made of, in words."""
        return "exact distances" if self.exact else "quantised distances"

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Numbers of neighbours to choose from."""
        assert isinstance(self.reading.k, tuple)
        return tuple(sorted(set(self.reading.k)))

    @property
    def k(self) -> int:
        """The most neighbours that may be read."""
        return self.cutoffs[-1]

    def scores(self, datastore: Datastore, found: Found, keys: np.ndarray | None) -> tuple[Tensor, Tensor]:
        """Neighbours int64 [n, k] and their similarity float32 [n, k], best first.

        Args:
            keys: of the n tokens, float32 [n, d]; needed to recompute.
        """
        ids, distances, metric = found.ids[:, : self.k], found.distances[:, : self.k], datastore.metric
        if self.recompute:
            assert keys is not None
            metric = "l2" if self.reading.similarity == "l2" else "ip"
            distances = exact_distances(datastore.keys, keys, np.ascontiguousarray(ids), metric)
        scores = scores_from_distances(torch.from_numpy(distances), metric)
        if self.reading.similarity == "scaled-dot":
            scores = scaled_dot(scores, datastore.keys.dim)
        return best_first(torch.from_numpy(ids), scores) if self.recompute else (torch.from_numpy(ids), scores)

    def grid(self, spread: float, every_cutoff: bool) -> ReadingGrid:
        """What the reading may be set to.

        Args:
            spread: `score_spread` of a sample; default temperatures are fractions of it.
            every_cutoff: whether to look at all doubling cut-offs beside those to choose from.
        """
        reader = READERS.load(self.reading.reader)
        weights = self.reading.weight
        doubling = doubling_cutoffs(self.k) if every_cutoff else ()
        return ReadingGrid(
            reader=reader,
            scales=_scales(self.reading, spread),
            cutoffs=tuple(sorted({*self.cutoffs, *doubling})),
            weights=weights if isinstance(weights, tuple) else reader.default_grid,
        )


def _scales(reading: Reading, spread: float) -> tuple[float, ...]:
    """Factors of the scores: 1/τ, or θ."""
    if isinstance(reading.theta, tuple):
        return reading.theta
    if isinstance(reading.temperature, tuple):
        return tuple(1 / temperature for temperature in reading.temperature)
    if reading.theta is None and reading.temperature is None:
        return (1.0,)
    return tuple(1 / (fraction * spread) for fraction in TEMPERATURE_FRACTIONS)


@dataclass(frozen=True)
class MemoryRow:
    """One row: readings in their order."""

    plans: tuple[ReadingPlan, ...]
    lossless: bool
    """Whether distances are found as the stored keys give them, so that none need be told apart."""

    @property
    def spelled(self) -> str:
        """The readings as a user would write them."""
        return " ".join(f"--memory {plan.reading.spelled}" for plan in self.plans)

    @property
    def name(self) -> str:
        """Short, for a table."""
        return " then ".join(
            plan.reading.name + ("" if self.lossless else f" ({plan.distances})") for plan in self.plans
        )

    def spreads(self, datastore: Datastore, found: Found, keys: np.ndarray | None) -> list[float]:
        """What default temperatures are measured in, for each reading, from a sample of tokens."""
        return [
            score_spread(plan.scores(datastore, found, keys)[1], plan.reading.similarity or "dot")
            for plan in self.plans
        ]

    def grids(self, spreads: Sequence[float]) -> list[ReadingGrid]:
        """The grid of each reading; a lone reading's also serves the curve over neighbours read."""
        alone = len(self.plans) == 1
        return [p.grid(s, every_cutoff=alone) for p, s in zip(self.plans, spreads, strict=True)]

    def recall(
        self, datastore: Datastore, found: Found, keys: np.ndarray | None, targets: Tensor
    ) -> Iterator[tuple[slice, list[Recalled]]]:
        """What each reading reads, for a few positions at a time; targets int64 [n]."""
        device = targets.device
        pairs = [plan.scores(datastore, found, keys) for plan in self.plans]
        step = max(1, CHUNK_CELLS // max(plan.k for plan in self.plans))
        for start in range(0, len(targets), step):
            part = slice(start, start + step)
            at = [Positions(ids[part].to(device), scores[part].to(device), datastore.values) for ids, scores in pairs]
            yield (
                part,
                [
                    recall(_read_sources(plan.reading, positions), targets[part])
                    for plan, positions in zip(self.plans, at, strict=True)
                ],
            )


def _read_sources(reading: Reading, at: Positions) -> Cells:
    (source,) = reading.sources
    return SOURCES.load(source)(at)
