"""What a gate does in a range of tokens."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from stages.diagnostics.gate.report import BINS, GROUPS
from stages.encoding.clock import now
from stages.models.language_model import LanguageModel


@dataclass(frozen=True)
class ShownPassage:
    """p tokens of the passage that is shown: `targets` int64 and `log_p`, both [p], in nats; `gates` [p, G], means
    of groups of neighbouring dimensions; `neighbors` int64 [p, k], tokens, -1 where one is missing.
    """

    targets: Tensor
    log_p: Tensor
    gates: Tensor
    neighbors: Tensor


@dataclass(frozen=True)
class GateScores:
    """What a gate did at n tokens.

    `mean` float32 [n]: of each token's gate; `log_p` float32 [n, C]: in nats, with each number of neighbours;
    `first_matches` int64 [n]: place of the first of `neighbors` neighbours that is right, `neighbors` where none is;
    `values` int64 [BINS]: gates of the counted tokens, all dimensions, by size; `seconds`: what telling this took.
    """

    mean: Tensor
    log_p: Tensor
    first_matches: Tensor
    values: Tensor
    neighbors: int
    shown: ShownPassage
    seconds: float

    def taken(self, rows: Tensor | slice) -> "GateScores":
        """The same of some of the tokens."""
        return replace(self, mean=self.mean[rows], log_p=self.log_p[rows], first_matches=self.first_matches[rows])


@dataclass
class GateAnalysis:
    """Collects, block after block, what is told of a gate.

    `numbers`: of neighbours of which perplexity is told, the first is what the gate reads; `counted` bool [n]: tokens
    whose gates are counted, None: all; `passage`: tokens that are shown.
    """

    numbers: tuple[int, ...]
    counted: Tensor | None
    passage: range
    _means: list[Tensor] = field(default_factory=list)
    _values: list[Tensor] = field(default_factory=list)
    _gates: list[Tensor] = field(default_factory=list)
    _log_p: list[Tensor] = field(default_factory=list)
    _seconds: float = 0.0

    def look(self, gate: Tensor, rows: slice, first: int) -> None:
        """Look at the gates [n, d] or [n, 1] of a block: rows of the range, the first of which is token `first`."""
        started = now(gate.device)
        self._means.append(gate.mean(1, dtype=torch.float32))
        self._values.append(histogram(gate if self.counted is None else gate[self.counted[rows]]))
        self._gates.append(grouped(gate[_within(self.passage, first, len(gate))]))
        self._seconds += now(gate.device) - started

    def compare(self, model: LanguageModel, hidden: Tensor, neighbors: Tensor, targets: Tensor) -> None:
        """Score a block with the other numbers of its neighbours [n, K]; hidden states [n, d], targets int64 [n]."""
        started = now(hidden.device)
        states = (model.gated(hidden, nearest(neighbors, k)).hidden for k in self.numbers[1:])
        log_p = [model.log_prob(state, targets)[0] for state in states]
        self._log_p.append(torch.stack(log_p, 1) if log_p else hidden.new_empty(len(hidden), 0))
        self._seconds += now(hidden.device) - started

    def scores(self, start: int, targets: Tensor, log_p: Tensor, neighbors: Tensor) -> GateScores:
        """All of it, once the range from `start` on is read; `targets` and `log_p` [n], `neighbors` [n, K]."""
        shown = _within(self.passage, start, len(targets))
        return GateScores(
            mean=torch.cat(self._means),
            log_p=torch.cat((log_p[:, None], torch.cat(self._log_p)), 1),
            first_matches=first_matches(neighbors, targets),
            values=torch.stack(self._values).sum(0),
            neighbors=neighbors.shape[1],
            shown=ShownPassage(
                targets[shown], log_p[shown], torch.cat(self._gates), nearest(neighbors[shown], self.numbers[0])
            ),
            seconds=self._seconds,
        )


def nearest(neighbors: Tensor, k: int) -> Tensor:
    """The best k of neighbours [n, K]; of none, one that is missing."""
    return neighbors[:, :k] if k else torch.full_like(neighbors[:, :1], -1)


def histogram(gate: Tensor) -> Tensor:
    """How many gates of any shape lie in each of BINS equal parts of [0, 1], int64 [BINS], on the CPU."""
    bins = (gate.float() * BINS).long().clamp_(0, BINS - 1)
    return torch.bincount(bins.flatten(), minlength=BINS).cpu()


def grouped(gate: Tensor) -> Tensor:
    """Gates [p, d] as means of at most GROUPS groups of neighbouring dimensions, float32 [p, G]."""
    size = -(-gate.shape[1] // GROUPS)
    return torch.stack([part.mean(1, dtype=torch.float32) for part in gate.split(size, dim=1)], 1)


def first_matches(neighbors: Tensor, targets: Tensor) -> Tensor:
    """Place of the first neighbour that holds the target, int64 [n]; K where none of K does."""
    right = neighbors == targets[:, None]
    beyond = right.new_ones(len(right), 1)
    return torch.cat((right, beyond), 1).int().argmax(1)


def _within(passage: range, first: int, length: int) -> slice:
    """Which of `length` tokens from `first` on lie in the passage."""
    start, stop = (min(max(edge - first, 0), length) for edge in (passage.start, passage.stop))
    return slice(start, stop)
