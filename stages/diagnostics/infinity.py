"""Probe of attention to a long-term signal: its place, its width, and the share of positions that see a signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Line, Lines
from stages.diagnostics.probe import LayerProbe, LayerWatch, Records, Sums
from stages.models.layers.memory_settings import InfinitySettings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.encoding.probe import ScoredBlock

PARTS = 16
"""Number of equal parts of the signal whose attention is reported separately."""


def _line(one: Mapping[str, Any]) -> str:
    if not one["by_place"]:
        return f"block {one['block']} sees no signal"
    half = f"half of its attention in the oldest {_median(one['by_place']):.2f} of it"
    return f"block {one['block']} sees a signal for {one['seen']:.1%}, {half}, deviation {one['deviation']:.2g}"


def _median(shares: Sequence[float]) -> float:
    """The median of attention on [0, 1], taken as uniform within each part."""
    ends = np.cumsum(shares)
    part = min(int(np.searchsorted(ends, 0.5)), len(shares) - 1)
    return (part + min(1.0, (0.5 - ends[part] + shares[part]) / shares[part])) / len(shares)


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}, deviation {one['deviation']:.2g}"


class SignalWatch(LayerWatch):
    """Sums the places of attention over positions that see a signal; for each token, means over heads and layers."""

    def module(self, layer: Any) -> nn.Module:
        reader: nn.Module = layer.reader
        return reader

    def see(self, block: ScoredBlock) -> None:
        import torch

        from stages.models.layers.infinity import masses

        columns = []
        for layer, calls in self.calls():
            mean, variance, seen = self.by_token(block, calls).cpu().unbind(1)
            deviation, ratio = variance.sqrt() * seen, variance / self.layers[layer].variance
            each = masses(mean[:, :, None], variance[:, :, None], PARTS)
            self.add(
                layer,
                seen=seen[:, 0].sum(),
                deviation=deviation.mean(1).sum(),
                # KL of two normal distributions with equal means is (r - ln r - 1) / 2, r the ratio of variances.
                divergence=((ratio - ratio.log() - 1) / 2 * seen).mean(1).sum(),
                parts=(each * seen[:, :1]).sum(0),
            )
            columns.append(torch.stack((mean * seen, deviation)).mean(2))
        place, width = torch.stack(columns).mean(0)
        self.column(signal_place=place, signal_deviation=width)

    def look(self, module: Any, given: Any, output: Any) -> Tensor:
        """Mean and variance of attention, and whether a signal was seen (1 or 0), float64 [B, n, 3, heads]."""
        import torch

        parts = output.mean, output.variance, given[2][:, None].expand_as(output.mean)
        return torch.stack([part.double() for part in parts], 1).permute(0, 3, 1, 2)


class InfinityProbe(LayerProbe):
    """Attention to a long-term signal: its place, its width, and the share of positions with a signal."""

    name: ClassVar[str] = "infinity"
    settings: ClassVar[type] = InfinitySettings
    layer: ClassVar[str] = "stages.models.layers.infinity:InfinityAttention"
    watching: ClassVar[type[LayerWatch]] = SignalWatch
    columns: ClassVar[tuple[str, ...]] = ("signal_place", "signal_deviation")

    def metrics(self, records: Records) -> dict[str, Any]:
        return {"sticky": self.chosen.sticky, **super().metrics(records)}

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        number, row = float(sums["seen"]), sums["parts"]
        return {
            "seen": number / tokens,
            "deviation": float(sums["deviation"]) / number if number else None,
            "divergence": float(sums["divergence"]) / number if number else None,
            "by_place": (row / row.sum()).tolist() if number else [],
        }

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`infinity: block 1 sees a signal for 95.0%, half of its attention in the oldest 0.41, deviation 0.12`."""
        return f"infinity: {'; '.join(map(_line, metrics['blocks']))}"

    @classmethod
    def is_shown(cls, block: Mapping[str, Any]) -> bool:
        return bool(block["by_place"])

    @classmethod
    def drawn(cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str) -> list[Chart]:
        number = len(blocks[0]["by_place"])
        places = [(part + 0.5) / number for part in range(number)]
        kept = (
            "The old signal is sampled in proportion (sticky), so that what lies above the average takes more room."
            if reported["sticky"]
            else "The old signal is sampled evenly."
        )
        return [
            Chart(
                "infinity-attention",
                f"Where attention falls on the long-term signal on {split}",
                f"The share of attention that goes to each {number}th of the signal, from the oldest, at 0, to the "
                f"newest; {1 / number:.2%} each would be even. {kept}",
                Lines(
                    [Line(_label(one), list(zip(places, one["by_place"], strict=True))) for one in blocks],
                    "place on the signal, oldest to newest",
                    "share of attention",
                    percent=True,
                    even=True,
                ),
            )
        ]
