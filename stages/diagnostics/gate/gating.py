"""The gate of a model at work: neighbours of a range of tokens enter their hidden states."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.diagnostics.gate.analysis import GateAnalysis, GateScores, nearest
from stages.models.language_model import LanguageModel
from stages.retrieval.neighbor_tokens import NeighborTokens


@dataclass(frozen=True)
class GateMemory:
    """What a gate reads of a split: the best `numbers[0]` neighbours of every token.

    Perplexity is told of each of the `numbers`; gates and neighbours are shown of the tokens in `passage`.
    """

    tokens: NeighborTokens
    numbers: tuple[int, ...]
    passage: range

    def begin(
        self, background: Executor, split: str, start: int, stop: int, analysis: GateAnalysis | None = None
    ) -> "Gating":
        """Begin to read the neighbours of tokens [start, stop)."""
        read = background.submit(self.tokens.read, split, start, stop)
        return Gating(read.result, start, self.numbers[0], analysis)

    def analysis(self, counted: Tensor | None) -> GateAnalysis:
        """Where what the gate does in a range is told; `counted` bool [n]: of which tokens, None: all."""
        return GateAnalysis(self.numbers, counted, self.passage)


@dataclass
class Gating:
    """Lets the neighbours of a range of tokens into their hidden states, block after block."""

    read: Callable[[], np.ndarray]
    """Waits for the tokens of the neighbours of the whole range, int64 [n, K], -1 where one is missing."""
    start: int
    number: int
    """Neighbours that are let in."""
    analysis: GateAnalysis | None = None
    _neighbors: Tensor | None = None

    @torch.no_grad()
    def let_in(self, model: LanguageModel, hidden: Tensor, targets: Tensor, first: int) -> Tensor:
        """z of a block, [n, d], in place of its hidden states; `first`: the token that the first of them predicts."""
        rows = slice(first - self.start, first - self.start + len(hidden))
        neighbors = self._all(hidden.device)[rows]
        gated = model.gated(hidden, nearest(neighbors, self.number))
        if self.analysis is not None:
            self.analysis.look(gated.gate, rows, first)
            self.analysis.compare(model, hidden, neighbors, targets)
        return gated.hidden

    def scores(self, targets: Tensor, log_p: Tensor) -> GateScores | None:
        """What the gate did at the range's tokens, if that is to be told; both [n], as they were scored."""
        if self.analysis is None:
            return None
        return self.analysis.scores(self.start, targets, log_p, self._all(targets.device))

    def _all(self, device: torch.device) -> Tensor:
        if self._neighbors is None:
            self._neighbors = torch.from_numpy(self.read()).to(device)
        return self._neighbors
