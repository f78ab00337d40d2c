"""Probe of product-key memories: the number of slots that are read, and how evenly."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Line, Lines
from stages.diagnostics.probe import LayerProbe, LayerWatch, Sums
from stages.models.layers.memory_settings import ProductKeysSettings
from stages.models.layers.settings import Place

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.probe import ScoredBlock


def packed(values: np.ndarray) -> str:
    """An array as compressed float32 in base64, short if most numbers are 0.

    >>> unpacked(packed(np.array([0.0, 0.5]))).tolist()
    [0.0, 0.5]
    """
    # Most slots of a large memory are read by no token of a range, and zeros compress well.
    return base64.b64encode(zlib.compress(values.astype(np.float32).tobytes())).decode()


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.float32).astype(np.float64)


def _line(one: Mapping[str, Any]) -> str:
    read = f"read {one['usage']:.1%} of {one['slots']:,} slots"
    return f"block {one['block']} {read}, KL {one['kl']:.2f} nats from even use"


def _held_by_heaviest(z: np.ndarray) -> list[list[float]]:
    """Pairs (n, share of all weight on the n most read slots), for n = 1, 2, 4, … and all slots."""
    total = np.cumsum(np.sort(z)[::-1])
    numbers = sorted({*(2**power for power in range(len(z).bit_length()) if 2**power <= len(z)), len(z)})
    return [[number, float(total[number - 1])] for number in numbers]


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}: {one['usage']:.0%} of {one['slots']:,} read"


class SlotsWatch(LayerWatch):
    """Sums the weight of each slot, and how often it is the best; for each token, the mean weight of the best slots."""

    def see(self, block: ScoredBlock) -> None:
        import torch

        config: Any = self.model.config
        number, largest = config.feed_forward.slots, []
        for layer, calls in self.calls():
            slots, weights = (self.by_token(block, part) for part in zip(*calls, strict=True))
            first = slots[..., 0]
            self.add(
                layer,
                weights=_added_up(slots, weights, number),
                best=_added_up(first, torch.ones_like(first), number),
            )
            largest.append(weights[..., 0].float().mean(1))
        self.mean_column("slot_weight", largest)

    def kept(self, numbers: np.ndarray) -> str:
        return packed(numbers)


def _added_up(slots: Tensor, weights: Tensor, number: int) -> Tensor:
    """Sums of weights by slot, float64 [number], on the CPU."""
    import torch

    return torch.bincount(slots.flatten().cpu(), weights.flatten().double().cpu(), number)


class ProductKeysProbe(LayerProbe):
    """Probe of the slots that are read, and how evenly."""

    name: ClassVar[str] = "product_keys"
    place: ClassVar[Place] = "feed_forward"
    settings: ClassVar[type] = ProductKeysSettings
    layer: ClassVar[str] = "stages.models.layers.product_keys:Lookup"
    watching: ClassVar[type[LayerWatch]] = SlotsWatch
    columns: ClassVar[tuple[str, ...]] = ("slot_weight",)

    def read(self, kept: str) -> np.ndarray:
        return unpacked(kept)

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """Figures of one memory; z is each slot's share of all weight; KL from uniform use, in nats."""
        z = sums["weights"] / sums["weights"].sum()
        read = z[z > 0]
        return {
            "slots": len(z),
            "usage": len(read) / len(z),
            "best_usage": np.count_nonzero(sums["best"]) / len(z),
            "kl": float(np.log(len(z)) + (read * np.log(read)).sum()),
            "heaviest": _held_by_heaviest(z),
        }

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`product keys: block 3 read 98.2% of 16,384 slots, KL 0.41 nats from even use`."""
        return f"product keys: {'; '.join(map(_line, metrics['blocks']))}"

    @classmethod
    def drawn(cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str) -> list[Chart]:
        most = max(blocks, key=lambda one: one["slots"])
        even = Line("all alike", [(number, number / most["slots"]) for number, _ in most["heaviest"]], dashed=True)
        lines = [Line(_label(one), [(number, share) for number, share in one["heaviest"]]) for one in blocks]
        ticks = [number for number, _ in most["heaviest"]][::2]
        return [
            Chart(
                "product-keys-usage",
                f"Product keys: how evenly slots are read on {split}",
                "The share of all weight that the most read slots have: the farther above the dashed line, the fewer "
                "do the work.",
                Lines([*lines, even], "most read slots", "share of all weight", ticks, percent=True, even=True),
            )
        ]
