"""Probe of attention to a long-term signal: its place, its width, and the share of positions that
see a signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Line, Lines
from stages.diagnostics.probe import Figures, LayerProbe, LayerWatch, Records, Sums
from stages.models.layers.memory_settings import InfinitySettings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.encoding.probe import ScoredBlock

PARTS = 16
"""Number of equal parts of the signal whose attention is reported separately."""


def _median(shares: Sequence[float]) -> float:
    """The median of attention on [0, 1], taken as uniform within each part."""
    ends = np.cumsum(shares)
    part = min(int(np.searchsorted(ends, 0.5)), len(shares) - 1)
    return (part + min(1.0, (0.5 - ends[part] + shares[part]) / shares[part])) / len(shares)


class InfinityProbe(LayerProbe):
    """Probe of attention to a long-term signal; figures are means over heads, and over positions
    that see a signal.
    """

    name: ClassVar[str] = "infinity"
    settings: ClassVar[type] = InfinitySettings
    layer: ClassVar[str] = "stages.models.layers.infinity:InfinityAttention"
    columns: ClassVar[tuple[str, ...]] = ("signal_place", "signal_deviation")

    def part(self, layer: Any) -> nn.Module:
        reader: nn.Module = layer.reader
        return reader

    def look(self, module: Any, arguments: Any, output: Any) -> Tensor:
        """Mean and variance of attention, and whether a signal was seen (1 or 0), float64 [B, n, 3,
        heads].
        """
        import torch

        parts = output.mean, output.variance, arguments[2][:, None].expand_as(output.mean)
        return torch.stack([part.double() for part in parts], 1).permute(0, 3, 1, 2)

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        from stages.models.layers.signal_basis import masses

        places = []
        widths = []
        for layer, calls in watch.calls():
            mean, variance, is_visible = watch.by_token(block, calls).cpu().unbind(1)
            deviation = variance.sqrt() * is_visible
            ratio = variance / watch.layers[layer].variance
            each = masses(mean[:, :, None], variance[:, :, None], PARTS)
            watch.add(
                layer,
                seen=is_visible[:, 0].sum(),
                deviation=deviation.mean(1).sum(),
                # KL of two normal distributions with equal means is (r - ln r - 1) / 2, r the ratio
                # of variances.
                divergence=((ratio - ratio.log() - 1) / 2 * is_visible).mean(1).sum(),
                parts=(each * is_visible[:, :1]).sum(0),
            )
            places.append((mean * is_visible).mean(1))
            widths.append(deviation.mean(1))
        watch.mean_column("signal_place", places)
        watch.mean_column("signal_deviation", widths)

    def metrics(self, records: Records) -> dict[str, Any]:
        return {"sticky": self.chosen.sticky, **super().metrics(records)}

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        number = float(sums["seen"])
        row = sums["parts"]
        return {
            "seen": number / tokens,
            "deviation": float(sums["deviation"]) / number if number else None,
            "divergence": float(sums["divergence"]) / number if number else None,
            "by_place": (row / row.sum()).tolist() if number else [],
        }

    @classmethod
    def line(cls, block: Figures) -> str:
        if not block["by_place"]:
            return "sees no signal"
        half = f"half of its attention in the oldest {_median(block['by_place']):.2f} of it"
        return f"sees a signal for {block['seen']:.1%}, {half}, deviation {block['deviation']:.2g}"

    @classmethod
    def is_shown(cls, block: Figures) -> bool:
        return bool(block["by_place"])

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        number = len(blocks[0]["by_place"])
        reached = (
            "The old signal is sampled in proportion (sticky), so that what lies above the average takes more room."
            if reported["sticky"]
            else "The old signal is sampled evenly."
        )
        caption = (
            f"The share of attention that goes to each {number}th of the signal, from the oldest, at 0, to the newest; "
            f"{1 / number:.2%} each would be even. {reached}"
        )
        lines = [
            Line(
                f"block {block['block']}, deviation {block['deviation']:.2g}",
                [((part + 0.5) / number, share) for part, share in enumerate(block["by_place"])],
            )
            for block in blocks
        ]
        plot = Lines(
            lines,
            "place on the signal, oldest to newest",
            "share of attention",
            percent=True,
            even=True,
        )
        title = f"Where attention falls on the long-term signal on {split}"
        return [Chart("infinity-attention", title, caption, plot)]
