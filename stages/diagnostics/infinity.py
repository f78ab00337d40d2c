"""Where on its signal attention looks, how closely, and how many positions see one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Line, Lines, Table
from stages.diagnostics.probe import Records
from stages.diagnostics.watching import LayerProbe, LayerWatch
from stages.models.layers.infinity_settings import InfinitySettings

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel
    from stages.models.layers.infinity import InfinityAttention, Look, SignalReader


PARTS = 16
"""Equal parts of the signal whose attention is reported apart."""


def _line(one: Mapping[str, Any]) -> str:
    if not one["by_place"]:
        return f"block {one['block']} sees no signal"
    half = f"half of its attention in the oldest {_median(one['by_place']):.2f} of it"
    return f"block {one['block']} sees a signal for {one['seen']:.1%}, {half}, deviation {one['deviation']:.2g}"


def _median(shares: Sequence[float]) -> float:
    """The place on [0, 1] before which lies half of the attention, which is even within a part."""
    ends = np.cumsum(shares)
    part = min(int(np.searchsorted(ends, 0.5)), len(shares) - 1)
    return (part + min(1.0, (0.5 - ends[part] + shares[part]) / shares[part])) / len(shares)


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}, deviation {one['deviation']:.2g}"


class InfinityProbe(LayerProbe):
    """Attention to a long-term signal: where, how closely, and for how many positions."""

    name: ClassVar[str] = "infinity"
    settings: ClassVar[type] = InfinitySettings
    columns: ClassVar[tuple[str, ...]] = ("signal_place", "signal_deviation")

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> SignalWatch:
        from stages.models.layers.infinity import InfinityAttention

        layers = [part for part in model.modules() if isinstance(part, InfinityAttention)]
        return SignalWatch(layers, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        tokens = sum(record["tokens"] for record in records)
        names = "seen", "parts", "deviations", "divergences"
        sums = (np.sum([record[name] for record in records], axis=0) for name in names)
        return {
            "sticky": self.chosen.sticky,
            "blocks": [
                {
                    "block": block,
                    "seen": float(number) / tokens,
                    "deviation": float(deviation) / float(number) if number else None,
                    "divergence": float(loss) / float(number) if number else None,
                    "by_place": (row / row.sum()).tolist() if number else [],
                }
                for block, number, row, deviation, loss in zip(self.blocks, *sums, strict=True)
            ],
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
                Table(
                    ("block", "seen", "deviation", "divergence", "place", "share"),
                    [
                        (one["block"], one["seen"], one["deviation"], one["divergence"], *pair)
                        for one in blocks
                        for pair in zip(places, one["by_place"], strict=True)
                    ],
                ),
            )
        ]


class SignalWatch(LayerWatch):
    """Adds up where positions look that see a signal; of a token, means over heads and layers."""

    def __init__(self, layers: Sequence[InfinityAttention], start: int, counted: Tensor | None) -> None:
        import torch

        readers = [layer.reader for layer in layers]
        super().__init__(readers, _by_position, readers[0].out.weight.device, start, counted)
        self._variances = [layer.variance for layer in layers]
        self._seen, self._deviations, self._divergences = (
            torch.zeros(len(layers), dtype=torch.float64) for _ in range(3)
        )
        self._parts = torch.zeros(len(layers), PARTS, dtype=torch.float64)
        self._place, self._deviation, self._tokens = list["Tensor"](), list["Tensor"](), 0

    def see(self, block: ScoredBlock) -> None:
        import torch

        from stages.models.layers.infinity import masses

        columns = list["Tensor"]()
        for layer, calls in self.calls():
            mean, variance, seen = self.by_token(block, calls).cpu().unbind(1)
            deviation, ratio = variance.sqrt() * seen, variance / self._variances[layer]
            each = masses(mean[:, :, None], variance[:, :, None], PARTS)
            self._seen[layer] += seen[:, 0].sum()
            self._deviations[layer] += deviation.mean(1).sum()
            self._divergences[layer] += ((ratio - ratio.log() - 1) / 2 * seen).mean(1).sum()
            self._parts[layer] += (each * seen[:, :1]).sum(0)
            columns.append(torch.stack((mean * seen, deviation)).mean(2))
        place, width = torch.stack(columns).mean(0).float()
        self._place.append(place)
        self._deviation.append(width)
        self._tokens += len(place)

    def seen(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        import torch

        record = {
            "tokens": self._tokens,
            "seen": self._seen.tolist(),
            "parts": self._parts.tolist(),
            "deviations": self._deviations.tolist(),
            "divergences": self._divergences.tolist(),
        }
        return {"signal_place": torch.cat(self._place), "signal_deviation": torch.cat(self._deviation)}, record


def _by_position(reader: SignalReader, given: Any, look: Look) -> Tensor:
    """Mean, variance, and whether a signal was seen (1 or 0), float64 [B, n, 3, heads]."""
    import torch

    seen = given[2][:, None].expand_as(look.mean)
    return torch.stack((look.mean.double(), look.variance.double(), seen.double()), 1).permute(0, 3, 1, 2)
