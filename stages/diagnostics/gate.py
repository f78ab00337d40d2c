"""SPALM's gate: how far it opens, what its neighbours are worth, a passage token by token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.curves import accuracy_chart
from stages.charts.data import Chart, HeatMap, Histogram, Series, Share, Side, Table
from stages.charts.reported import Report, scored
from stages.diagnostics.passage import tokens_of
from stages.diagnostics.probe import Probe, Records
from stages.diagnostics.watching import counted_rows
from stages.encoding.clock import now
from stages.encoding.probe import Observation, RangeProbe
from stages.lineage.corpus import token_text
from stages.memory.hyperparameter import doubling_cutoffs
from stages.metrics import finite, perplexity
from stages.numbers import number

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel
    from stages.retrieval.gate_reader import GateReader


BINS = 50
"""Equal parts of [0, 1] in which gates are counted."""
GROUPS = 32
"""Groups of neighbouring dimensions, at most, in which a passage's gates are shown."""


def _summed(histograms: Iterable[Sequence[int]]) -> list[int]:
    total: list[int] = np.sum(list(histograms), axis=0).tolist()
    return total


def _nats(sums: Iterable[float | None]) -> float:
    return sum(inf if one is None else one for one in sums)


KINDS = {"values": "all dimensions", "tokens": "mean of a token"}
LONGEST_LABEL = 16
"""Characters of a token's text that a heat map has room for."""


def _histogram(gate: Mapping[str, Any], split: str) -> Chart:
    """Shares of tokens, and of all dimensions of all tokens, by the value of the gate."""
    edges, counts = gate["histogram"]["edges"], gate["histogram"]
    return Chart(
        "gate-histogram",
        f"Gate on {split}, {gate['neighbors']} neighbours",
        f"How large gates are, from 0 (memory alone) to 1 (context alone); their mean is {number(gate['mean'])}.",
        Histogram(
            edges,
            [Series(label, [n / max(1, sum(counts[kind])) for n in counts[kind]]) for kind, label in KINDS.items()],
            gate["mean"],
            "gate g (0: memory, 1: context)",
        ),
        Table(
            ("from", "to", "tokens", "values"),
            [(*ends, *held) for ends, *held in zip(pairwise(edges), counts["tokens"], counts["values"], strict=True)],
        ),
    )


def _passage(passage: Mapping[str, Any]) -> Chart:
    """Gates of consecutive tokens (across), in groups of dimensions (up)."""
    tokens = passage["tokens"]
    groups = range(len(tokens[0]["gate"]))
    neighbors = (f"neighbor {place}" for place in range(1, 1 + len(tokens[0]["neighbors"])))
    return Chart(
        "gate-passage",
        f"Gate at tokens {passage['start']}:{passage['stop']} of {passage['split']}",
        "Where the gate opens to the memory and where it keeps to the context: tokens across, dimensions up.",
        HeatMap(
            [token["gate"] for token in tokens],
            Side("", [spelled(token["text"]) for token in tokens], turned=True),
            Side("dimensions, in groups" if len(groups) > 1 else "", [""] * len(groups)),
            Share("memory", "context"),
        ),
        Table(
            ("text", "probability", *(f"gate {group}" for group in groups), *neighbors),
            [(t["text"], t["probability"], *t["gate"], *t["neighbors"]) for t in tokens],
        ),
    )


def spelled(text: str) -> str:
    """A token that can be drawn: short, with a sign for each space, control characters as escapes."""
    shown = text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
    return "".join(
        "␣" if sign == " " else sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in shown
    )


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
        import torch

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
        import torch

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
        import torch

        others = (_scored(block, neighbors, k) for k in self._numbers[1:])
        return torch.stack([block.log_p, *others], 1)

    def _shown(self, block: ScoredBlock, gate: Tensor, neighbors: Tensor) -> list[dict[str, object]]:
        """The tokens of the passage that lie in a block: probability, gate in groups of dimensions, neighbours."""
        from stages.retrieval.gate_reader import nearest

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
    import torch

    from stages.retrieval.gate_reader import nearest

    model: LanguageModel = block.model
    with torch.no_grad():
        read = model.gated(block.encoded.hidden, nearest(neighbors, k)).hidden
    return model.log_prob(read, block.encoded.targets)[0]


def histogram(gate: Tensor) -> Tensor:
    """How many gates of any shape lie in each of BINS equal parts of [0, 1], int64 [BINS], on the CPU."""
    import torch

    bins = (gate.float() * BINS).long().clamp_(0, BINS - 1)
    return torch.bincount(bins.flatten(), minlength=BINS).cpu()


def grouped(gate: Tensor) -> Tensor:
    """Gates [p, d] as means of at most GROUPS groups of neighbouring dimensions, float32 [p, G]."""
    import torch

    size = -(-gate.shape[1] // GROUPS)
    return torch.stack([part.mean(1, dtype=torch.float32) for part in gate.split(size, dim=1)], 1)


def first_matches(neighbors: Tensor, targets: Tensor) -> Tensor:
    """Place of the first neighbour that holds the target, int64 [n]; K where none of K does."""
    import torch

    right = neighbors == targets[:, None]
    beyond = right.new_ones(len(right), 1)
    return torch.cat((right, beyond), 1).int().argmax(1)


def _within(passage: range, first: int, length: int) -> slice:
    """Which of `length` tokens from `first` on lie in the passage."""
    start, stop = (min(max(edge - first, 0), length) for edge in (passage.start, passage.stop))
    return slice(start, stop)


@dataclass(frozen=True)
class GateProbe(Probe):
    """`numbers`: of neighbours of which perplexity is reported; `passage`: tokens of `split` that are shown."""

    columns: ClassVar[tuple[str, ...]] = ("gate",)

    numbers: tuple[int, ...]
    passage: range
    tokens: Artifact
    split: str

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        if "gate_neighbors" not in read:
            return None
        read_numbers = options["gate_k"]
        numbers = read_numbers if 0 in read_numbers else (*read_numbers, 0)  # the same weights with the gate shut
        return cls(numbers, tokens_of(options["passage"]), read["tokens"], split)

    def watch(self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None) -> GateWatch:
        from stages.retrieval.gate_reader import GateReader

        assert isinstance(reader, GateReader), "a model with a gate reads through it"
        return GateWatch(reader, start, counted, self.numbers, self.passage)

    def metrics(self, records: Records) -> dict[str, Any]:
        tokens = sum(gate["tokens"] for gate in records)
        nats = [_nats(sums) for sums in zip(*(gate["nll"] for gate in records), strict=True)]
        return {
            "neighbors": self.numbers[0],
            "mean": sum(gate["sum"] for gate in records) / tokens,
            "histogram": {
                "edges": [place / BINS for place in range(BINS + 1)],
                "tokens": _summed(gate["token_histogram"] for gate in records),
                "values": _summed(gate["value_histogram"] for gate in records),
            },
            "neighbors_right": {k: sum(gate["matches"][k] for gate in records) / tokens for k in records[0]["matches"]},
            "by_neighbors": [
                {"neighbors": k, "perplexity": perplexity(nll, tokens), "nll": finite(nll)}
                for k, nll in sorted(zip(self.numbers, nats, strict=True))
            ],
        }

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        """Perplexity against the number of neighbours; none where no other number was asked for."""
        points = metrics["by_neighbors"]
        return [{"row": row, "over": "neighbors", "points": points}] if len(points) > 2 else []

    def files(self, records: Records) -> dict[str, Any]:
        """`passage.json`: tokens that follow each other, their gates, and their neighbours beside them."""
        label = token_text(self.tokens).label
        tokens = [
            {
                "text": label(token["token"]),
                "probability": token["probability"],
                "gate": token["gate"],
                "neighbors": [label(other) if other >= 0 else None for other in token["neighbors"]],
            }
            for gate in records
            for token in gate["passage"]
        ]
        place = {"split": self.split, "start": self.passage.start, "stop": self.passage.stop}
        return {"passage.json": {**place, "tokens": tokens}}

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`gate: 4 neighbours, mean 0.71; the best is right for 31.2% of the tokens, one of 4 for 45.0%`."""
        right = sorted((int(k), share) for k, share in metrics["neighbors_right"].items())
        (_, best), (most, any_of_them) = right[0], right[-1]
        line = f"gate: {metrics['neighbors']} neighbours, mean {number(metrics['mean'])}; "
        line += f"the best is right for {best:.1%} of the tokens"
        return line if most == 1 else f"{line}, one of {most} for {any_of_them:.1%}"

    @classmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        """`gate-histogram`, `gate-accuracy`, `gate-passage`: as far as there are numbers."""
        gate = metrics.get("gate")
        if gate is None:
            return []
        charts = [_histogram(gate, metrics["split"])]
        if gate["neighbors_right"]:
            report = Report(metrics, scored(metrics))
            right = [(report, report.scored, gate["neighbors_right"])]
            charts.append(accuracy_chart("gate-accuracy", "Retrieval accuracy@K of the gate's neighbours", right))
        return [*charts, _passage(files["passage.json"])] if "passage.json" in files else charts
