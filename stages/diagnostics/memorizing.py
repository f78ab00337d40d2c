"""How old the entries are that memorizing attention finds, how well they fit, and how far its gates open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, Histogram, Line, Lines, Series, Table
from stages.diagnostics.probe import PlainProbe, Records
from stages.diagnostics.watching import Calls, counted_rows
from stages.encoding.clock import now
from stages.encoding.probe import Observation, RangeProbe
from stages.models.config import model_of
from stages.models.layers.memorizing_settings import MemorizingSettings
from stages.models.layers.settings import AttentionConfig
from stages.numbers import number

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel
    from stages.models.layers.memorizing import MemorizingAttention, Retrieved, Search


AGES = 32
"""Groups of ages: from 2^g to less than 2^(g + 1) positions."""
ANGLES = 40
"""Parts into which cosines from -1 to 1 are divided."""


def search_figures(records: Records, blocks: Sequence[int], gates: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The `memorizing` of `metrics.json`.

    Args:
        blocks: that have such attention, counted from 1, in the order of a record's `ages`, `cosines`, `scores` and
            `found`.
        gates: of the heads of each.
    """
    tokens = sum(record["tokens"] for record in records)
    names = "ages", "cosines", "scores", "found"
    ages, cosines, scores, found = (np.sum([record[name] for record in records], axis=0) for name in names)
    return {
        "blocks": [
            {
                "block": block,
                "gates": list(its_gates),
                "found": float(number) / (tokens * len(its_gates)),
                "score": float(score) / float(number) if number else None,
                "by_age": _shares(weights),
                "by_cosine": (counts / number).tolist() if number else [],
            }
            for block, its_gates, weights, counts, score, number in zip(
                blocks, gates, ages, cosines, scores, found, strict=True
            )
        ]
    }


def _shares(weights: np.ndarray) -> list[list[float]]:
    """Pairs of an age and the share of all weight that entries of this age up to its double have; none of no weight."""
    if not weights.any():
        return []
    last = int(np.flatnonzero(weights).max())
    return [[2**group, float(weights[group] / weights.sum())] for group in range(last + 1)]


def _line(one: Mapping[str, Any]) -> str:
    gates = f"gates {min(one['gates']):.2f} … {max(one['gates']):.2f}"
    age = _median(one["by_age"])
    if age is None:
        return f"block {one['block']} finds nothing; {gates}"
    found = f"finds entries for {one['found']:.1%}, half of their weight {age:,} or more back"
    return f"block {one['block']} {found}; {gates}"


def _median(shares: Sequence[Sequence[float]]) -> int | None:
    """The largest age at or above which lies half of the weight."""
    total = 0.0
    for age, share in reversed(shares):
        total += share
        if total >= 0.5:
            return int(age)
    return None


EDGES = [2 * place / ANGLES - 1 for place in range(ANGLES + 1)]
"""Borders of the bins that cosines are counted in."""


def search_charts(metrics: Mapping[str, Any]) -> list[Chart]:
    """`memorizing-ages` and `memorizing-cosines`, if there are numbers.

    Args:
        metrics: the content of `metrics.json`.
    """
    report = metrics.get("memorizing")
    blocks = [] if report is None else [one for one in report["blocks"] if one["by_age"]]
    if not blocks:
        return []
    ages = sorted({age for one in blocks for age, _ in one["by_age"]})
    return [
        Chart(
            "memorizing-ages",
            f"How far back memory is read on {metrics['split']}",
            "The share of the weight of what searches in memory found, by how many positions it lies back; every age "
            "up to its double.",
            Lines(
                [Line(_label(one), [(age, share) for age, share in one["by_age"]]) for one in blocks],
                "positions back",
                "share of weight",
                ages,
                percent=True,
                even=True,
            ),
            Table(
                ("block", "found", "score", "age", "share"),
                [(one["block"], one["found"], one["score"], *pair) for one in blocks for pair in one["by_age"]],
            ),
        ),
        *_cosines([one for one in blocks if one.get("by_cosine")], metrics["split"]),
    ]


def _cosines(blocks: Sequence[Mapping[str, Any]], split: str) -> list[Chart]:
    """None of reports that were made before they were counted."""
    if not blocks:
        return []
    middles = [(low + high) / 2 for low, high in pairwise(EDGES)]
    shares = [one["by_cosine"] for one in blocks]
    mean = sum(m * share for part in shares for m, share in zip(middles, part, strict=True)) / len(blocks)
    return [
        Chart(
            "memorizing-cosines",
            f"How well the best entry fits on {split}",
            "The cosine of each query, of every head, and the key of the best entry of memory; their mean is "
            f"{number(mean)}.",
            Histogram(
                EDGES,
                [Series(f"block {one['block']}", part) for one, part in zip(blocks, shares, strict=True)],
                mean,
                "cosine of query and key",
            ),
            Table(
                ("block", "from", "to", "share"),
                [
                    (one["block"], *ends, share)
                    for one in blocks
                    for ends, share in zip(pairwise(EDGES), one["by_cosine"], strict=True)
                ],
            ),
        )
    ]


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}, gates {', '.join(f'{gate:.2f}' for gate in one['gates'])}"


@dataclass(frozen=True)
class MemorizingProbe(PlainProbe):
    """`blocks`: those that have such attention, counted from 1."""

    columns: ClassVar[tuple[str, ...]] = ("memory_weight", "memory_age")

    blocks: tuple[int, ...]

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        if not isinstance(model, AttentionConfig) or not isinstance(model.attention, MemorizingSettings):
            return None
        return cls(model.blocks_with("attention"))

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> SearchWatch:
        from stages.models.layers.memorizing import MemorizingAttention

        layers = [part for part in model.modules() if isinstance(part, MemorizingAttention)]
        return SearchWatch(layers, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        return search_figures(records, self.blocks, records[0]["gates"])

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`memorizing: block 3 finds entries for 98.0%, half of their weight 512 or more back; gates 0.12 … 0.71`."""
        return f"memorizing: {'; '.join(map(_line, metrics['blocks']))}"

    @classmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        return search_charts(metrics)


class SearchWatch(RangeProbe):
    """Adds up, block after block, how old what is found is and how well it fits; of a token, what its best entry is."""

    def __init__(self, layers: Sequence[MemorizingAttention], start: int, counted: Tensor | None) -> None:
        """`start`, `counted`: as in `counted_rows`."""
        import torch

        self._start, self._counted = start, counted
        self._gates = [layer.gates().detach().double().cpu() for layer in layers]
        self._scales = [layer.scales().detach().double().cpu() for layer in layers]
        self._calls = Calls([layer.search for layer in layers], _by_position, layers[0].gate.device)
        self._ages = torch.zeros(len(layers), AGES, dtype=torch.float64)
        self._cosines = torch.zeros(len(layers), ANGLES, dtype=torch.float64)
        self._scores, self._found = (torch.zeros(len(layers), dtype=torch.float64) for _ in range(2))
        self._weight, self._age, self._tokens = list["Tensor"](), list["Tensor"](), 0
        self._seconds = 0.0

    def observe(self, block: ScoredBlock) -> None:
        import torch

        started = now(block.log_p.device)
        rows, largest, oldest = counted_rows(self._counted, self._start, block), list["Tensor"](), list["Tensor"]()
        for layer, calls in enumerate(self._calls.take()):
            found = block.encoded.of_tokens(torch.cat(_of_one_width(calls), 1))[rows].cpu()
            ages, scores, weights = found.unbind(1)
            groups = ages.clamp(min=1).log2().long().clamp(max=AGES - 1)
            self._ages[layer] += torch.bincount(groups.flatten(), weights.flatten(), AGES)
            sees = weights[..., 0] > 0
            cosines = (scores[..., 0] / self._scales[layer])[sees]
            parts = ((cosines + 1) / 2 * ANGLES).long().clamp(0, ANGLES - 1)
            self._cosines[layer] += torch.bincount(parts, minlength=ANGLES)
            self._scores[layer] += scores[..., 0][sees].sum()
            self._found[layer] += sees.sum()
            weight, head = (self._gates[layer] * weights[..., 0]).max(1)
            largest.append(weight)
            oldest.append(ages[..., 0].gather(1, head[:, None])[:, 0] * (weight > 0))
        weight, place = torch.stack(largest).max(0)
        self._weight.append(weight.float())
        self._age.append(torch.stack(oldest).gather(0, place[None])[0].float())
        self._tokens += len(weight)
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        import torch

        self._calls.close()
        record = {
            "tokens": self._tokens,
            "gates": [gates.tolist() for gates in self._gates],
            "ages": self._ages.tolist(),
            "cosines": self._cosines.tolist(),
            "scores": self._scores.tolist(),
            "found": self._found.tolist(),
        }
        columns = {"memory_weight": torch.cat(self._weight), "memory_age": torch.cat(self._age)}
        return Observation(columns, record, self._seconds + self._calls.seconds)


def _by_position(search: Search, given: Any, found: Retrieved) -> Tensor:
    """Ages, scores and weights, the best entry first, float64 [B, n, 3, heads, k]; scores are 0 where none is seen."""
    import torch

    weights = found.weights.double()
    parts = torch.stack((found.ages.double(), found.scores.double().where(weights > 0, 0.0), weights), 1)
    order = weights.argsort(-1, descending=True)[:, None].expand_as(parts)
    return parts.gather(-1, order).permute(0, 3, 1, 2, 4)


def _of_one_width(calls: Sequence[Tensor]) -> list[Tensor]:
    """The same with as many entries a position, at least one: what is added has no weight."""
    import torch.nn.functional as F

    most = max(1, *(one.shape[4] for one in calls))
    return [F.pad(one, (0, most - one.shape[4])) for one in calls]
