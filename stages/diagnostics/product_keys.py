"""Probe of product-key memories: the number of slots that are read, and how evenly."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Line, Lines
from stages.diagnostics.probe import Figures, LayerProbe, LayerWatch, Sums
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


class ProductKeysProbe(LayerProbe):
    """Probe of the slots that are read, and how evenly."""

    name: ClassVar[str] = "product_keys"
    label: ClassVar[str] = "product keys"
    place: ClassVar[Place] = "feed_forward"
    settings: ClassVar[type] = ProductKeysSettings
    layer: ClassVar[str] = "stages.models.layers.product_keys:Lookup"
    columns: ClassVar[tuple[str, ...]] = ("slot_weight",)

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        import torch

        config: Any = watch.model.config
        largest = []

        def added_up(slots: Tensor, weights: Tensor) -> Tensor:
            return torch.bincount(
                slots.flatten().cpu(), weights.flatten().double().cpu(), config.feed_forward.slots
            )

        for layer, calls in watch.calls():
            slots, weights = (watch.by_token(block, part) for part in zip(*calls, strict=True))
            first = slots[..., 0]
            watch.add(
                layer,
                weights=added_up(slots, weights),
                best=added_up(first, torch.ones_like(first)),
            )
            largest.append(weights[..., 0].float().mean(1))
        watch.mean_column("slot_weight", largest)

    def to_record(self, numbers: np.ndarray) -> str:
        return packed(numbers)

    def read(self, record: str) -> np.ndarray:
        return unpacked(record)

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """Figures of one memory; z is each slot's share of all weight; KL from uniform use, in
        nats.

        `heaviest`: pairs (n, share of all weight on the n most read slots), for n = 1, 2, 4, … and
        all slots.
        """
        z = sums["weights"] / sums["weights"].sum()
        read = z[z > 0]
        total = np.cumsum(np.sort(z)[::-1])
        numbers = sorted(
            {*(2**power for power in range(len(z).bit_length()) if 2**power <= len(z)), len(z)}
        )
        return {
            "slots": len(z),
            "usage": len(read) / len(z),
            "best_usage": np.count_nonzero(sums["best"]) / len(z),
            "kl": float(np.log(len(z)) + (read * np.log(read)).sum()),
            "heaviest": [[number, float(total[number - 1])] for number in numbers],
        }

    @classmethod
    def line(cls, block: Figures) -> str:
        return f"read {block['usage']:.1%} of {block['slots']:,} slots, KL {block['kl']:.2f} nats from even use"

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        numbers = [
            number for number, _ in max(blocks, key=lambda block: block["slots"])["heaviest"]
        ]
        lines = []
        for block in blocks:
            label = f"block {block['block']}: {block['usage']:.0%} of {block['slots']:,} read"
            lines.append(Line(label, [(number, share) for number, share in block["heaviest"]]))
        even = Line(
            "all alike", [(number, number / numbers[-1]) for number in numbers], dashed=True
        )
        plot = Lines(
            [*lines, even],
            "most read slots",
            "share of all weight",
            numbers[::2],
            percent=True,
            even=True,
        )
        title = f"Product keys: how evenly slots are read on {split}"
        caption = (
            "The share of all weight that the most read slots have: the farther above the dashed line, the fewer do "
            "the work."
        )
        return [Chart("product-keys-usage", title, caption, plot)]
