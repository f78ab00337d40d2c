"""Memory read over arrays, without a store: scores of the past, the reading of entries, the best
numbers of a reading.

Shapes: n positions, k entries a position, d width of keys. Log-probabilities are natural.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stages.memory.entries import Entries
from stages.memory.readers import READERS
from stages.memory.recent import Recent, Similarity, recent_entries
from stages.metrics import perplexity as perplexity_of
from stages.retrieval.grids import (
    TEMPERATURE_FRACTIONS,
    ReadingGrid,
    best_points,
    score_spread,
)
from stages.retrieval.scored_range import retrieve
from stages.retrieval.weights.grid import grid_nll


class Numbers(NamedTuple):
    """Numbers of a reading, as `read` takes them."""

    weight: float
    """λ of `interpolate`, α of `joint`."""
    temperature: float
    k: int


def recent(keys: Any, tokens: Any, size: int, similarity: Similarity = "dot") -> Entries:
    """The recent past of every position of a stream as its memory: that of a neural cache.

    Args:
        keys: float [n, d], the representation of each position.
        tokens: int [n], the token after each.
        size: maximum number of positions read back.
    Returns: entries [n, k], the nearest first; position 0 has none.

    >>> recent(torch.eye(3), torch.tensor([5, 7, 5]), size=2).values
    tensor([[-1, -1],
            [ 5, -1],
            [ 7,  5]])
    """
    keys, tokens = torch.as_tensor(keys), torch.as_tensor(tokens)
    first = (torch.arange(len(tokens)) - size).clamp(min=0)
    return recent_entries(Recent(keys, tokens, first.to(keys.device), similarity, size))


def read(
    log_p: Any,
    entries: Entries,
    targets: Any,
    *,
    weight: float,
    temperature: float = 1.0,
    k: int | None = None,
    reader: str = "interpolate",
    log_z: Any = None,
) -> Tensor:
    """log p of the targets, float [n], with memory read on top of `log_p`; unchanged if a position
    reads nothing.

    Args:
        log_p: of the targets by the model alone, [n].
        entries: what each position reads.
        targets: the token that comes at each position, int [n].
        weight: λ, the weight of the memory, or α, added to its scores (`joint`).
        temperature: scores of entries are divided by it.
        k: number of entries read, the first ones; None: all.
        reader: `interpolate`, a weighted mean, or `joint`, one softmax over the scores of both.
        log_z: log of the sum of exp of the vocabulary's scores, [n], which `joint` needs.

    The model gives the target 1/2, then 1/10. Two entries are equally near, and one of them holds
    it:

    >>> entries = Entries(torch.zeros(1, 2), torch.tensor([[5, 7]]))
    >>> read(torch.tensor([0.5]).log(), entries, torch.tensor([5]), weight=0.5).exp()
    tensor([0.5000])
    >>> read(torch.tensor([0.1]).log(), entries, torch.tensor([5]), weight=0.5).exp()  # 1/2 · 1/10 + 1/2 · 1/2
    tensor([0.3000])
    """
    log_p, log_z = _scores(log_p, log_z)
    retrieved = retrieve(entries, torch.as_tensor(targets))
    sums = retrieved.log_sums([1 / temperature], [k or entries.scores.shape[1]]).at(0, 0)
    return READERS.load(reader)().read(log_p, log_z, sums, weight)


def tune(
    log_p: Any,
    entries: Entries,
    targets: Any,
    *,
    weights: Sequence[float] = (),
    temperatures: Sequence[float] = (),
    k: Sequence[int] = (),
    reader: str = "interpolate",
    log_z: Any = None,
) -> Numbers:
    """The numbers of a reading with the smallest perplexity on these positions; do not report
    results on the same.

    Args:
        weights, temperatures, k: values to try. None given: the reader's grid of weights,
            temperatures around the spread of the scores, and all entries.
        others: as of `read`.
    """
    log_p, log_z = _scores(log_p, log_z)
    if not temperatures:
        spread = score_spread(entries.scores, "dot")
        temperatures = [fraction * spread for fraction in TEMPERATURE_FRACTIONS]
    (weight,) = READERS.settings(reader).hyperparameters().values()
    grid = ReadingGrid(
        READERS.load(reader)(),
        tuple(1 / one for one in temperatures),
        tuple(sorted(k or [entries.scores.shape[1]])),
        tuple(weights or weight.grid),
        off=weight.off,
        tries_off=not weights,
    )
    nll = grid_nll(log_p, log_z, [retrieve(entries, torch.as_tensor(targets))], [grid])
    (point,) = best_points(nll, [grid], [grid.cutoffs])
    return Numbers(point.weight, 1 / point.scale, point.cutoff)


def perplexity(log_p: Any) -> float:
    """exp of the mean negative log-probability.

    >>> round(perplexity(torch.tensor([0.5, 0.125]).log()), 6)  # the geometric mean is 1/4
    4.0
    """
    log_p = torch.as_tensor(log_p).double()
    return perplexity_of(-float(log_p.sum()), len(log_p)) or math.nan


def _scores(log_p: Any, log_z: Any) -> tuple[Tensor, Tensor]:
    log_p = torch.as_tensor(log_p).float()
    return log_p, torch.zeros_like(log_p) if log_z is None else torch.as_tensor(log_z).float()
