"""Probe of SPALM's gate: its values, the gain by neighbours, a passage token by token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, HeatMap, Histogram, Series, Share, Side
from stages.charts.report import accuracy_chart
from stages.charts.reported import Report, scored
from stages.diagnostics.options import tokens_of
from stages.diagnostics.probe import LayerWatch, Records, SummingProbe
from stages.lineage.corpus import token_text
from stages.lineage.evaluation import MODELS_OWN
from stages.memory.hyperparameter import doubling_cutoffs
from stages.metrics import finite, perplexity
from stages.numbers import number

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.probe import ScoredBlock


BINS = 50
"""Number of equal bins of [0, 1] in the histogram of gates."""
GROUPS = 32
"""Maximum number of groups of neighbouring dimensions in which a passage's gates are shown."""


KINDS = {"values": "all dimensions", "tokens": "mean of a token"}
LONGEST_LABEL = 16
"""Maximum number of characters of a token in a heat map."""


def spelled(text: str) -> str:
    """A token's text for drawing: shortened, with a visible sign for spaces, and control characters
    escaped.
    """
    shown = text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
    return "".join(
        "␣"
        if sign == " "
        else sign
        if sign.isprintable()
        else sign.encode("unicode_escape").decode()
        for sign in shown
    )


def _scored(block: ScoredBlock, neighbors: Tensor, k: int) -> Tensor:
    """log p of a block's targets, [n], if the gate reads the k best neighbours."""
    import torch

    from stages.retrieval.gate_reader import nearest

    with torch.no_grad():
        read = block.model.gated(block.encoded.hidden, nearest(neighbors, k)).hidden
    return block.model.log_prob(read, block.encoded.targets)[0]


def histogram(gate: Tensor) -> Tensor:
    """Number of gates, of any shape, in each of BINS equal bins of [0, 1], int64 [BINS], on the
    CPU.
    """
    import torch

    bins = (gate.float() * BINS).long().clamp_(0, BINS - 1)
    return torch.bincount(bins.flatten(), minlength=BINS).cpu()


def grouped(gate: Tensor) -> Tensor:
    """Gates [p, d] as means of at most GROUPS groups of neighbouring dimensions, float32 [p, G]."""
    import torch

    size = -(-gate.shape[1] // GROUPS)
    return torch.stack([part.mean(1, dtype=torch.float32) for part in gate.split(size, dim=1)], 1)


def first_matches(neighbors: Tensor, targets: Tensor) -> Tensor:
    """Place of the first neighbour whose token is the target, int64 [n]; K if none of K is.

    >>> import torch
    >>> first_matches(torch.tensor([[5, 7, 7], [1, 2, 3]]), torch.tensor([7, 7])).tolist()
    [1, 3]
    """
    import torch

    right = neighbors == targets[:, None]
    beyond = right.new_ones(len(right), 1)
    return torch.cat((right, beyond), 1).int().argmax(1)


@dataclass(frozen=True)
class GateProbe(SummingProbe):
    """Probe of the gate.

    `numbers`: numbers of neighbours for which perplexity is reported. `passage`: tokens of `split`
    that are shown.
    """

    columns: ClassVar[tuple[str, ...]] = ("gate",)

    numbers: tuple[int, ...]
    passage: range
    tokens: Artifact
    split: str

    @classmethod
    def open(
        cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str
    ) -> Self | None:
        if MODELS_OWN not in read:
            return None
        read_numbers = options["gate_k"]
        numbers = (
            read_numbers if 0 in read_numbers else (*read_numbers, 0)
        )  # the same weights with the gate shut
        return cls(numbers, tokens_of(options["passage"]), read["tokens"], split)

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        import torch

        from stages.retrieval.gate_reader import GateReader

        reader = watch.reader
        rows = watch.rows(block)
        assert isinstance(reader, GateReader) and reader.gated is not None, (
            "a model with a gate reads through it"
        )
        gate = reader.gated.gate
        neighbors = reader.neighbors(block.encoded)
        mean = gate.mean(1, dtype=torch.float32)[rows]
        first = first_matches(neighbors, block.encoded.targets)[rows]
        others = (_scored(block, neighbors, k) for k in self.numbers[1:])
        watch.more["stored"] = neighbors.shape[1]
        watch.add(
            0,
            sum=mean.double().sum(),
            token_histogram=histogram(mean),
            value_histogram=histogram(gate[rows]),
            matches=np.array(
                [int((first < k).sum()) for k in doubling_cutoffs(neighbors.shape[1])]
            ),
            nll=-torch.stack([block.log_p, *others], 1)[rows].double().sum(0),
        )
        watch.column("gate", mean)
        watch.more.setdefault("passage", []).extend(self._shown(block, gate, neighbors))

    def _shown(self, block: ScoredBlock, gate: Tensor, neighbors: Tensor) -> list[dict[str, Any]]:
        """The tokens of the passage in a block: probability, gate by groups of dimensions,
        neighbours.
        """
        from stages.retrieval.gate_reader import nearest

        first = block.encoded.start
        rows = slice(max(self.passage.start - first, 0), max(self.passage.stop - first, 0))
        columns = (
            block.encoded.targets[rows].tolist(),
            np.exp(block.log_p[rows].double().cpu().numpy()).tolist(),
            grouped(gate[rows]).double().cpu().tolist(),
            nearest(neighbors[rows], self.numbers[0]).tolist(),
        )
        tokens = []
        for token, p, gates, others in zip(*columns, strict=True):
            rounded = [round(value, 6) for value in gates]
            tokens.append({"token": token, "probability": p, "gate": rounded, "neighbors": others})
        return tokens

    def to_record(self, numbers: np.ndarray) -> Any:
        """A sum as JSON; in lists, None means a number that is not finite."""
        return [finite(float(number)) for number in numbers] if numbers.ndim else float(numbers)

    def read(self, record: Any) -> Any:
        if not isinstance(record, list):
            return record
        return [inf if number is None else number for number in record]

    def metrics(self, records: Records) -> dict[str, Any]:
        (sums,) = self.sums(records)
        tokens = sum(record["tokens"] for record in records)
        ks = doubling_cutoffs(records[0]["stored"])
        by_neighbors = sorted(zip(self.numbers, sums["nll"].tolist(), strict=True))
        return {
            "neighbors": self.numbers[0],
            "mean": float(sums["sum"]) / tokens,
            "histogram": {
                "edges": [place / BINS for place in range(BINS + 1)],
                "tokens": sums["token_histogram"].astype(int).tolist(),
                "values": sums["value_histogram"].astype(int).tolist(),
            },
            "neighbors_right": {
                str(k): float(n) / tokens for k, n in zip(ks, sums["matches"], strict=True)
            },
            "by_neighbors": [
                {"neighbors": k, "perplexity": perplexity(nll, tokens), "nll": finite(nll)}
                for k, nll in by_neighbors
            ],
        }

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        """Perplexity against the number of neighbours; empty if no other number was asked for."""
        points = metrics["by_neighbors"]
        return [{"row": row, "over": "neighbors", "points": points}] if len(points) > 2 else []

    def files(self, records: Records) -> dict[str, Any]:
        """`passage.json`: consecutive tokens, each with its gate and its neighbours."""
        label = token_text(self.tokens).label
        tokens = []
        for token in (token for record in records for token in record["passage"]):
            names = [label(other) if other >= 0 else None for other in token["neighbors"]]
            columns = {name: token[name] for name in ("probability", "gate")}
            tokens.append({"text": label(token["token"]), **columns, "neighbors": names})
        place = {"split": self.split, "start": self.passage.start, "stop": self.passage.stop}
        return {"passage.json": {**place, "tokens": tokens}}

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`gate: 4 neighbours, mean 0.71; the best is right for 31.2% of the tokens, one of 4 for
        45.0%`.
        """
        right = sorted((int(k), share) for k, share in metrics["neighbors_right"].items())
        best = right[0][1]
        largest, any_of_them = right[-1]
        line = f"gate: {metrics['neighbors']} neighbours, mean {number(metrics['mean'])}; "
        line += f"the best is right for {best:.1%} of the tokens"
        return line if largest == 1 else f"{line}, one of {largest} for {any_of_them:.1%}"

    @classmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        """`gate-histogram`, `gate-accuracy`, `gate-passage`: as far as there are numbers."""
        gate = metrics.get("gate")
        if gate is None:
            return []
        counts = gate["histogram"]
        title = f"Gate on {metrics['split']}, {gate['neighbors']} neighbours"
        series = []
        for kind, label in KINDS.items():
            total = max(1, sum(counts[kind]))
            series.append(Series(label, [count / total for count in counts[kind]]))
        plot = Histogram(counts["edges"], series, gate["mean"], "gate g (0: memory, 1: context)")
        caption = f"How large gates are, from 0 (memory alone) to 1 (context alone); their mean is {number(gate['mean'])}."
        charts = [Chart("gate-histogram", title, caption, plot)]
        if gate["neighbors_right"]:
            report = Report(metrics, scored(metrics))
            right = [(report, report.scored, gate["neighbors_right"])]
            charts.append(
                accuracy_chart(
                    "gate-accuracy", "Retrieval accuracy@K of the gate's neighbours", right
                )
            )
        if "passage.json" in files:
            passage = files["passage.json"]
            gates = [token["gate"] for token in passage["tokens"]]
            labels = [spelled(token["text"]) for token in passage["tokens"]]
            up = Side("dimensions, in groups" if len(gates[0]) > 1 else "", [""] * len(gates[0]))
            title = f"Gate at tokens {passage['start']}:{passage['stop']} of {passage['split']}"
            caption = "Where the gate opens to the memory and where it keeps to the context: tokens across, dimensions up."
            heat_map = HeatMap(gates, Side("", labels, turned=True), up, Share("memory", "context"))
            charts.append(Chart("gate-passage", title, caption, heat_map))
        return charts
