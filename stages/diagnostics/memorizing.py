"""Probe of memorizing attention: age and similarity of the entries that it finds, and values of its
gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Histogram, Line, Lines, Series
from stages.diagnostics.probe import Figures, LayerProbe, LayerWatch, Sums
from stages.models.layers.memory_settings import MemorizingSettings
from stages.numbers import number

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.encoding.probe import ScoredBlock

AGES = 32
"""Number of groups of ages; group g has ages from 2^g to less than 2^(g + 1) positions."""
ANGLES = 40
"""Number of equal bins of cosines from -1 to 1."""
EDGES = [2 * place / ANGLES - 1 for place in range(ANGLES + 1)]
"""Edges of the bins of cosines."""


def _shares(weights: np.ndarray) -> list[list[float]]:
    """Pairs (age, share of all weight on entries from this age to its double); empty without any
    weight.
    """
    if not weights.any():
        return []
    last = int(np.flatnonzero(weights).max())
    return [[2**group, float(weights[group] / weights.sum())] for group in range(last + 1)]


def _median(shares: Sequence[Sequence[float]]) -> int | None:
    """The largest age such that half of the weight is on entries at least as old."""
    total = 0.0
    for age, share in reversed(shares):
        total += share
        if total >= 0.5:
            return int(age)
    return None


class MemorizingProbe(LayerProbe):
    """Probe of the age and similarity of entries that are found, of the best entry of each token,
    and of the gates.
    """

    name: ClassVar[str] = "memorizing"
    settings: ClassVar[type] = MemorizingSettings
    layer: ClassVar[str] = "stages.models.layers.memorizing:MemorizingAttention"
    columns: ClassVar[tuple[str, ...]] = ("memory_weight", "memory_age")

    def part(self, layer: Any) -> nn.Module:
        search: nn.Module = layer.search
        return search

    def constants(self, layer: Any) -> dict[str, Any]:
        return {"gates": layer.gates().detach().double().tolist()}

    def look(self, module: Any, arguments: Any, output: Any) -> Tensor:
        """Ages, scores (0 if no entry is seen) and weights, the best entry first, float64 [B, n, 3,
        heads, k].
        """
        import torch

        weights = output.weights.double()
        parts = torch.stack(
            (output.ages.double(), output.scores.double().where(weights > 0, 0.0), weights), 1
        )
        order = weights.argsort(-1, descending=True)[:, None].expand_as(parts)
        return parts.gather(-1, order).permute(0, 3, 1, 2, 4)

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        import torch

        largest = list["Tensor"]()
        oldest = list["Tensor"]()
        for layer, calls in watch.calls():
            gates, scales = (
                values.detach().double().cpu()
                for values in (watch.layers[layer].gates(), watch.layers[layer].scales())
            )
            ages, scores, weights = watch.by_token(block, _of_one_width(calls)).cpu().unbind(1)
            groups = ages.clamp(min=1).log2().long().clamp(max=AGES - 1)
            sees = weights[..., 0] > 0
            cosines = (scores[..., 0] / scales)[sees]
            parts = ((cosines + 1) / 2 * ANGLES).long().clamp(0, ANGLES - 1)
            watch.add(
                layer,
                ages=torch.bincount(groups.flatten(), weights.flatten(), AGES),
                cosines=torch.bincount(parts, minlength=ANGLES),
                score=scores[..., 0][sees].sum(),
                found=sees.sum(),
            )
            weight, head = (gates * weights[..., 0]).max(1)
            largest.append(weight)
            oldest.append(ages[..., 0].gather(1, head[:, None])[:, 0] * (weight > 0))
        weight, place = torch.stack(largest).max(0)
        watch.column("memory_weight", weight)
        watch.column("memory_age", torch.stack(oldest).gather(0, place[None])[0])

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        number = float(sums["found"])
        gates = sums["gates"]
        return {
            "gates": list(gates),
            "found": number / (tokens * len(gates)),
            "score": float(sums["score"]) / number if number else None,
            "by_age": _shares(sums["ages"]),
            "by_cosine": (sums["cosines"] / number).tolist() if number else [],
        }

    @classmethod
    def line(cls, block: Figures) -> str:
        gates = f"gates {min(block['gates']):.2f} … {max(block['gates']):.2f}"
        age = _median(block["by_age"])
        if age is None:
            return f"finds nothing; {gates}"
        return f"finds entries for {block['found']:.1%}, half of their weight {age:,} or more back; {gates}"

    @classmethod
    def is_shown(cls, block: Figures) -> bool:
        return bool(block["by_age"])

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        lines = []
        for block in blocks:
            label = f"block {block['block']}, gates {', '.join(f'{gate:.2f}' for gate in block['gates'])}"
            lines.append(Line(label, [(age, share) for age, share in block["by_age"]]))
        ages = sorted({age for block in blocks for age, _ in block["by_age"]})
        middles = [(low + high) / 2 for low, high in pairwise(EDGES)]
        total = sum(
            m * share
            for block in blocks
            for m, share in zip(middles, block["by_cosine"], strict=True)
        )
        mean = total / len(blocks)
        return [
            Chart(
                "memorizing-ages",
                f"How far back memory is read on {split}",
                "The share of the weight of what searches in memory found, by how many positions it lies back; every "
                "age up to its double.",
                Lines(lines, "positions back", "share of weight", ages, percent=True, even=True),
            ),
            Chart(
                "memorizing-cosines",
                f"How well the best entry fits on {split}",
                f"The cosine of each query, of every head, and the key of the best entry of memory; their mean is "
                f"{number(mean)}.",
                Histogram(
                    EDGES,
                    [Series(f"block {block['block']}", block["by_cosine"]) for block in blocks],
                    mean,
                    "cosine of query and key",
                ),
            ),
        ]


def _of_one_width(calls: Sequence[Tensor]) -> list[Tensor]:
    """The same observations, padded to an equal number of entries, at least one; padding has no
    weight.
    """
    import torch.nn.functional as F

    width = max(1, *(call.shape[4] for call in calls))
    return [F.pad(call, (0, width - call.shape[4])) for call in calls]
