"""Records a gate's activity in a range of tokens."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from stages.diagnostics.gate.report import BINS, GROUPS
from stages.diagnostics.watching import counted_rows
from stages.encoding.clock import now
from stages.encoding.probe import Observation, RangeProbe, ScoredBlock
from stages.memory.hyperparameter import doubling_cutoffs
from stages.metrics import finite
from stages.models.language_model import LanguageModel
from stages.retrieval.gate_reader import GateReader, nearest


@dataclass
class _Seen:
    """Per-token measurements, collected block by block."""

    means: list[Tensor] = field(default_factory=list)
    """float32 [n], of each token's gate."""
    log_p: list[Tensor] = field(default_factory=list)
    """float32 [n, C], in nats, with each number of neighbours."""
    first_matches: list[Tensor] = field(default_factory=list)
    """int64 [n]: place of the first neighbour that is right, K where none of K is."""
    histograms: list[Tensor] = field(default_factory=list)
    """int64 [BINS]: gates of counted tokens, all dimensions, by size."""
    passage: list[dict[str, object]] = field(default_factory=list)


class GateWatch(RangeProbe):
    """Collects, block after block, what is reported of a gate."""

    def __init__(
        self, reader: GateReader, start: int, counted: Tensor | None, numbers: tuple[int, ...], passage: range
    ) -> None:
        """Args:
        start: the first token of the range.
        counted: bool [n], tokens that figures are about; None: all.
        numbers: of neighbours of which perplexity is reported; the first is what the gate reads.
        passage: tokens that are shown.
        """
        self._reader, self._start, self._counted = reader, start, counted
        self._numbers, self._passage = numbers, passage
        self._seen, self._stored, self._seconds = _Seen(), 0, 0.0

    def observe(self, block: ScoredBlock) -> None:
        started = now(block.log_p.device)
        gate = self._gate()
        rows = counted_rows(self._counted, self._start, block)
        neighbors, targets = self._reader.neighbors(block.encoded), block.encoded.targets
        self._stored = neighbors.shape[1]
        self._seen.means.append(gate.mean(1, dtype=torch.float32)[rows])
        self._seen.histograms.append(histogram(gate[rows]))
        self._seen.log_p.append(self._log_p(block, neighbors)[rows])
        self._seen.first_matches.append(first_matches(neighbors, targets)[rows])
        self._seen.passage += self._shown(block, gate, neighbors)
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        mean, first = torch.cat(self._seen.means), torch.cat(self._seen.first_matches)
        nll = -torch.cat(self._seen.log_p).double().sum(0).cpu().numpy()
        record = {
            "tokens": len(mean),
            "sum": float(mean.double().sum()),
            "token_histogram": histogram(mean).tolist(),
            "value_histogram": torch.stack(self._seen.histograms).sum(0).tolist(),
            "matches": {str(k): int((first < k).sum()) for k in doubling_cutoffs(self._stored)},
            "nll": [finite(float(one)) for one in nll],
            "passage": self._seen.passage,
        }
        return Observation({"gate": mean}, record, self._seconds)

    def _gate(self) -> Tensor:
        assert self._reader.gated is not None, "a block is read before it is looked at"
        return self._reader.gated.gate

    def _log_p(self, block: ScoredBlock, neighbors: Tensor) -> Tensor:
        """log p of the targets with each number of neighbours, [n, C]; the first is as they were scored."""
        others = (_scored(block, neighbors, k) for k in self._numbers[1:])
        return torch.stack([block.log_p, *others], 1)

    def _shown(self, block: ScoredBlock, gate: Tensor, neighbors: Tensor) -> list[dict[str, object]]:
        """The tokens of the passage that lie in a block: probability, gate in groups of dimensions, neighbours."""
        rows = _within(self._passage, block.encoded.start, len(block.log_p))
        columns = (
            block.encoded.targets[rows].tolist(),
            np.exp(block.log_p[rows].double().cpu().numpy()).tolist(),
            grouped(gate[rows]).double().cpu().tolist(),
            nearest(neighbors[rows], self._numbers[0]).tolist(),
        )
        return [
            {"token": token, "probability": p, "gate": [round(value, 6) for value in gates], "neighbors": others}
            for token, p, gates, others in zip(*columns, strict=True)
        ]


def _scored(block: ScoredBlock, neighbors: Tensor, k: int) -> Tensor:
    """log p of a block's targets, [n], with its k best neighbours let in."""
    model: LanguageModel = block.model
    with torch.no_grad():
        read = model.gated(block.encoded.hidden, nearest(neighbors, k)).hidden
    return model.log_prob(read, block.encoded.targets)[0]


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
