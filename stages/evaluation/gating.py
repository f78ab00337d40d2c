"""The gate of a model at work on a range of tokens, and what it did there."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.gate_report import BINS, GROUPS
from stages.evaluation.neighbor_tokens import NeighborTokens
from stages.models.language_model import LanguageModel


@dataclass(frozen=True)
class GateMemory:
    """What a gate reads of a split: the best `numbers[0]` neighbours of every token.

    Perplexity is told of each of the `numbers`; gates and neighbours are shown of the tokens in `passage`.
    """

    tokens: NeighborTokens
    numbers: tuple[int, ...]
    passage: range

    def analysis(self, counted: Tensor | None) -> "Analysis":
        """Where what the gate does in a range is told; `counted` bool [n]: of which tokens, None: all."""
        return Analysis(self.numbers[1:], counted, self.passage)

    def begin(
        self, background: Executor, split: str, start: int, stop: int, analysis: "Analysis | None" = None
    ) -> "Gating":
        """Begin to read the neighbours of tokens [start, stop)."""
        read = background.submit(self.tokens.read, split, start, stop)
        return Gating(read.result, start, self.numbers[0], analysis)


@dataclass(frozen=True)
class Shown:
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
    `first_hits` int64 [n]: place of the first of `neighbors` neighbours that is right, `neighbors` where none is;
    `values` int64 [BINS]: gates of the counted tokens, all dimensions, by size.
    """

    mean: Tensor
    log_p: Tensor
    first_hits: Tensor
    values: Tensor
    neighbors: int
    shown: Shown

    def taken(self, rows: Tensor | slice) -> "GateScores":
        """The same of some of the tokens."""
        return replace(self, mean=self.mean[rows], log_p=self.log_p[rows], first_hits=self.first_hits[rows])


@dataclass
class Analysis:
    """Collects, block after block, what is told of a gate."""

    more: tuple[int, ...]
    """Numbers of neighbours of which perplexity is told, beside that which is read."""
    counted: Tensor | None
    passage: range
    _means: list[Tensor] = field(default_factory=list)
    _log_p: list[Tensor] = field(default_factory=list)
    _values: list[Tensor] = field(default_factory=list)
    _gates: list[Tensor] = field(default_factory=list)

    def note(self, gate: Tensor, at: slice, first: int) -> None:
        """Look at the gates [n, d] or [n, 1] of rows `at` of the range, the first of which is token `first`."""
        self._means.append(gate.mean(1, dtype=torch.float32))
        self._values.append(histogram(gate if self.counted is None else gate[self.counted[at]]))
        self._gates.append(grouped(gate[_within(self.passage, first, len(gate))]))

    def compare(self, model: LanguageModel, hidden: Tensor, neighbors: Tensor, targets: Tensor) -> None:
        """Score a block's targets with other numbers of neighbours."""
        log_p = [model.log_prob(model.gated(hidden, nearest(neighbors, k)).hidden, targets)[0] for k in self.more]
        self._log_p.append(torch.stack(log_p, 1) if log_p else hidden.new_empty(len(hidden), 0))

    def scores(self, start: int, targets: Tensor, log_p: Tensor, neighbors: Tensor, number: int) -> GateScores:
        """All of it, once the whole range is read; `targets` and `log_p` [n], `neighbors` [n, K], `number` read."""
        at = _within(self.passage, start, len(targets))
        return GateScores(
            mean=torch.cat(self._means),
            log_p=torch.cat((log_p[:, None], torch.cat(self._log_p)), 1),
            first_hits=first_hits(neighbors, targets),
            values=torch.stack(self._values).sum(0),
            neighbors=neighbors.shape[1],
            shown=Shown(targets[at], log_p[at], torch.cat(self._gates), neighbors[at, :number]),
        )


@dataclass
class Gating:
    """Lets the neighbours of a range of tokens into their hidden states, block after block."""

    read: Callable[[], np.ndarray]
    """Waits for the tokens of the neighbours of the whole range, int64 [n, K], -1 where one is missing."""
    start: int
    number: int
    """Neighbours that are let in."""
    analysis: Analysis | None = None
    _neighbors: Tensor | None = None

    @torch.no_grad()
    def let_in(self, model: LanguageModel, hidden: Tensor, targets: Tensor, first: int) -> Tensor:
        """z of a block, [n, d], in place of its hidden states; `first`: the token that the first of them predicts."""
        at = slice(first - self.start, first - self.start + len(hidden))
        neighbors = self._all(hidden.device)[at]
        z, gate = model.gated(hidden, nearest(neighbors, self.number))
        if self.analysis is not None:
            self.analysis.note(gate, at, first)
            self.analysis.compare(model, hidden, neighbors, targets)
        return z

    def scores(self, targets: Tensor, log_p: Tensor) -> GateScores | None:
        """What the gate did at the range's tokens, if that is to be told; both [n], as they were scored."""
        if self.analysis is None:
            return None
        return self.analysis.scores(self.start, targets, log_p, self._all(targets.device), self.number)

    def _all(self, device: torch.device) -> Tensor:
        if self._neighbors is None:
            self._neighbors = torch.from_numpy(self.read()).to(device)
        return self._neighbors


def nearest(neighbors: Tensor, k: int) -> Tensor:
    """The best k of neighbours [n, K]; of none, one that is missing."""
    return neighbors[:, :k] if k else torch.full_like(neighbors[:, :1], -1)


def histogram(gate: Tensor) -> Tensor:
    """How many gates of any shape lie in each of BINS equal parts of [0, 1], int64 [BINS], on the CPU."""
    bins = (gate.detach().float() * BINS).long().clamp_(0, BINS - 1)
    return torch.bincount(bins.flatten(), minlength=BINS).cpu()


def grouped(gate: Tensor) -> Tensor:
    """Gates [p, d] as means of at most GROUPS groups of neighbouring dimensions, float32 [p, G]."""
    size = -(-gate.shape[1] // GROUPS)
    return torch.stack([part.mean(1, dtype=torch.float32) for part in gate.split(size, dim=1)], 1)


def first_hits(neighbors: Tensor, targets: Tensor) -> Tensor:
    """Place of the first neighbour that holds the target, int64 [n]; K where none of K does."""
    right = neighbors == targets[:, None]
    none = right.new_ones(len(right), 1)
    return torch.cat((right, none), 1).int().argmax(1)


def _within(passage: range, first: int, length: int) -> slice:
    """Which of `length` tokens from `first` on lie in the passage."""
    start, stop = (min(max(edge - first, 0), length) for edge in (passage.start, passage.stop))
    return slice(start, stop)
