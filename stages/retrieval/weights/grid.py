"""One weight for all contexts: as given, or the best of a grid on the tuning split."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from stages.memory.entries import LogSums
from stages.metrics import finite
from stages.retrieval.grids import ReadingGrid, best_point
from stages.retrieval.scored_range import Retrieved, ScoredRange
from stages.retrieval.weights.coordinate_descent import LOG_SUMS, arrays_of, coordinate_descent, sums_bytes, sums_of
from stages.retrieval.weights.policy import Arrays, Choice, Pass, Record, WeightPolicy

TRIED_TOGETHER = 10_000
"""Maximum number of points of a joint grid; beyond it, one reading is tuned at a time."""
TUNE = Pass("tune", "tuning on")


@dataclass(frozen=True)
class Fixed(WeightPolicy):
    """One number for each setting of every reading."""

    with_curve: bool = True
    """Whether a lone reading is read with every cut-off of its grid."""

    @cached_property
    def chosen(self) -> Choice:
        even = np.zeros([n for grid in self.grids for n in grid.shape])
        cutoffs = self.grids[0].cutoffs if self.with_curve and len(self.grids) == 1 else ()
        by_cutoff = [best_point(even, self.grids, [(cutoff,)]).indices for cutoff in cutoffs]
        return Choice(best_point(even, self.grids, self.allowed).indices, by_cutoff)


@dataclass(frozen=True)
class Grid(WeightPolicy):
    """One number for all contexts, chosen by the likelihood of the tuning split.

    Every point of the readings' joint grid is tried, up to TRIED_TOGETHER of them; beyond, one reading is tuned at a
    time.
    """

    passes: ClassVar[tuple[Pass, ...]] = (TUNE,)

    def observe(self, step: str, block: ScoredRange) -> Arrays:
        """Sums over the grid; or, for readings in turn, log-sums of every token that counts."""
        scored = block.lm
        if self.tries_all:
            nll = np.zeros([n for grid in self.grids for n in grid.shape])
            for rows, retrieved in self.row.retrieve(block):
                nll += grid_nll(scored.log_p[rows], scored.log_z[rows], retrieved, self.grids)
            return {"nll": nll}
        parts = [
            [one.log_sums(grid.scales, grid.cutoffs) for one, grid in zip(retrieved, self.grids, strict=True)]
            for _, retrieved in self.row.retrieve(block)
        ]
        counted = block.counted_rows
        log_sums = [_joined(one) for one in zip(*parts, strict=True)]
        return arrays_of((scored.log_p[counted], scored.log_z[counted], log_sums))

    def choose(self, step: str, observed: Iterable[Arrays]) -> Record:
        return self._choice(observed)._asdict()

    @property
    def candidates(self) -> list[Sequence[int]]:
        """Indices of all points of a lone reading that may be chosen."""
        (grid,), (allowed,) = self.grids, self.allowed
        cutoffs = [grid.cutoffs.index(cutoff) for cutoff in allowed]
        return list(product(range(len(grid.scales)), cutoffs, range(len(grid.tried))))

    def at(self, indices: Sequence[int]) -> Self:
        """The policy at a point, whatever its likelihood."""
        return self.after(TUNE.name, Choice(indices)._asdict())

    def settle(self, indices: Sequence[int], observed: Iterable[Arrays]) -> Record:
        """The choice of a lone reading's point, made by another measure than likelihood."""
        return self._choice(observed, indices)._asdict()

    def scratch_bytes(self, tokens: int) -> int:
        return 0 if self.tries_all else sums_bytes(self.grids, tokens)

    @property
    def tries_all(self) -> bool:
        """Whether every point of the joint grid is tried; else readings are tuned in turn.

        The weight that switches a memory off does not count: it is tried in addition to the grid.
        """
        spelled = math.prod(len(one) for grid in self.grids for one in (grid.scales, grid.cutoffs, grid.weights))
        return len(self.grids) == 1 or spelled <= TRIED_TOGETHER

    @cached_property
    def chosen(self) -> Choice:
        return Choice(**self.choices[TUNE.name])

    def _choice(self, observed: Iterable[Arrays], settled: Sequence[int] | None = None) -> Choice:
        """The best indices, if none are settled; a lone reading also gets the best ones for every cut-off."""
        assert settled is None or self.tries_all, "a lone reading tries all"
        if not self.tries_all:
            end, trace = coordinate_descent(lambda: map(sums_of, observed), self.grids, self.allowed)
            return Choice(end.indices, best_nll=finite(trace[-1]))
        nll = np.sum([arrays["nll"] for arrays in observed], axis=0)
        indices = settled or best_point(nll, self.grids, self.allowed).indices
        best = finite(float(nll[tuple(indices)]))
        if len(self.grids) > 1:
            return Choice(indices, best_nll=best)
        # a curve with memory switched off at some cut-offs would be misleading
        shown = nll[:, :, self._shown_weights(indices)]
        by_cutoff = [
            indices if number == indices[1] else best_point(shown, self.grids, [(cutoff,)]).indices
            for number, cutoff in enumerate(self.grids[0].cutoffs)
        ]
        sums = [[finite(value) for value in line] for line in nll[:, indices[1], :].tolist()]
        return Choice(indices, by_cutoff, sums, best, [finite(float(nll[tuple(at)])) for at in by_cutoff])

    def _shown_weights(self, indices: Sequence[int]) -> slice:
        """Indices of the weights that reports show; the weight that switches memory off is shown only if chosen."""
        grid = self.grids[0]
        return slice(None) if grid.is_off(grid.tried[indices[2]]) else slice(len(grid.weights))

    def describe_grid(self, tokens: int) -> dict[str, Any] | None:
        """Mean negative log-likelihood of a lone reading, nats per token of the tuning split, [scale][weight].

        Values are those at the best number of entries. None for several readings.
        """
        nll, indices = self.chosen.nll, self.chosen.indices
        if nll is None:
            return None
        (grid,), (source,) = self.grids, self.row.sources
        reading = source.reading
        shown = sorted(range(len(grid.tried))[self._shown_weights(indices)], key=grid.tried.__getitem__)
        return {
            "row": self.row.name,
            "over": source.about.amount,
            "at": grid.cutoffs[indices[1]],
            "tokens": tokens,
            "scale_name": reading.scale_name,
            "scales": [grid.shown_scale(scale) for scale in grid.scales],
            "weight_name": reading.weight_name,
            "weights": [grid.tried[at] for at in shown],
            "nll": [[None if (nats := line[at]) is None else nats / tokens for at in shown] for line in nll],
        }


def grid_nll(log_p: Tensor, log_z: Tensor, retrieved: Sequence[Retrieved], grids: Sequence[ReadingGrid]) -> np.ndarray:
    """Summed negative log-likelihood of n targets at every point of the grid, float64.

    Args:
        log_p, log_z: [n], of the model alone, in nats.
        retrieved: what each reading reads, in the order of reading.
        grids: of each reading.
    Returns: [S, C, G] for one reading, [S, C, G, S', C', G'] for two, and so on.

    The model gives the target 1/10; of two equally near entries the first holds it; λ = 1/2:

    >>> from stages.memory.entries import Entries
    >>> from stages.memory.readers import READERS
    >>> from stages.retrieval.scored_range import retrieve
    >>> found = retrieve(Entries(torch.zeros(1, 2), torch.tensor([[5, 7]])), torch.tensor([5]))
    >>> grid = ReadingGrid(READERS.load("interpolate")(), scales=(1.0,), cutoffs=(1, 2), weights=(0.5,))
    >>> nll = grid_nll(torch.tensor([0.1]).log(), torch.zeros(1), [found], [grid])
    >>> np.exp(-nll).round(3).tolist()  # 1/2 · 1/10 + 1/2 · 1, and 1/2 · 1/10 + 1/2 · 1/2
    [[[0.55], [0.3]]]
    """
    log_sums = [one.log_sums(grid.scales, grid.cutoffs) for one, grid in zip(retrieved, grids, strict=True)]
    return _sweep(log_p, log_z, log_sums, grids).cpu().numpy()


def _sweep(log_p: Tensor, log_z: Tensor, log_sums: Sequence[LogSums], grids: Sequence[ReadingGrid]) -> Tensor:
    grid, later = grids[0], grids[1:]
    sums = []
    for scale in range(len(grid.scales)):
        for cutoff in range(len(grid.cutoffs)):
            read = grid.read_tried(log_p, log_z, log_sums[0].at(scale, cutoff))
            if later:
                sums += [_sweep(one, log_z, log_sums[1:], later) for one in read]
            else:
                sums.append(-read.sum(-1, dtype=torch.float64))
    return torch.stack(sums).view(*(n for one in grids for n in one.shape))


def _joined(parts: Sequence[LogSums]) -> LogSums:
    """LogSums [S, C, …] of tokens that follow each other."""
    return LogSums(*(torch.cat([getattr(part, name) for part in parts], -1) for name in LOG_SUMS))
