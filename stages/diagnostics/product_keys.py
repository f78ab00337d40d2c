"""How many slots of a product-key memory are read, and how evenly."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.charts.data import Chart, Line, Lines, Table
from stages.diagnostics.probe import Records
from stages.diagnostics.watching import LayerProbe, LayerWatch
from stages.models.layers.product_keys_settings import ProductKeysSettings
from stages.models.layers.settings import Place

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel
    from stages.models.layers.product_keys import Lookup


def packed(values: np.ndarray) -> str:
    """An array of float32 as text, short where most are 0."""
    return base64.b64encode(zlib.compress(values.astype(np.float32).tobytes())).decode()


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.float32).astype(np.float64)


def _of_block(records: Records, place: int, block: int) -> dict[str, Any]:
    """Slots of one memory, of which z is the share of all weight that a slot had; KL in nats, from even use."""
    weights, best = (
        np.sum([unpacked(record[name][place]) for record in records], axis=0) for name in ("weights", "best")
    )
    z = weights / weights.sum()
    read = z[z > 0]
    return {
        "block": block,
        "slots": len(z),
        "usage": len(read) / len(z),
        "best_usage": np.count_nonzero(best) / len(z),
        "kl": float(np.log(len(z)) + (read * np.log(read)).sum()),
        "heaviest": _held_by_heaviest(z),
    }


def _line(one: Mapping[str, Any]) -> str:
    read = f"read {one['usage']:.1%} of {one['slots']:,} slots"
    return f"block {one['block']} {read}, KL {one['kl']:.2f} nats from even use"


def _held_by_heaviest(z: np.ndarray) -> list[list[float]]:
    """The share of all weight that the 1, 2, 4, … most read slots have, and all."""
    total = np.cumsum(np.sort(z)[::-1])
    numbers = sorted({*(2**power for power in range(len(z).bit_length()) if 2**power <= len(z)), len(z)})
    return [[number, float(total[number - 1])] for number in numbers]


COLUMNS = ("block", "slots", "usage", "best usage", "KL", "heaviest", "share")


def _label(one: Mapping[str, Any]) -> str:
    return f"block {one['block']}: {one['usage']:.0%} of {one['slots']:,} read"


def _rows(one: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    shared = (one["block"], one["slots"], one["usage"], one["best_usage"], one["kl"])
    return [(*shared, number, share) for number, share in one["heaviest"]]


class ProductKeysProbe(LayerProbe):
    """Slots that are read, and how evenly."""

    name: ClassVar[str] = "product_keys"
    place: ClassVar[Place] = "feed_forward"
    settings: ClassVar[type] = ProductKeysSettings
    columns: ClassVar[tuple[str, ...]] = ("slot_weight",)

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> SlotsWatch:
        from stages.models.layers.product_keys import Lookup

        lookups = [part for part in model.modules() if isinstance(part, Lookup)]
        return SlotsWatch(lookups, self.chosen.slots, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        return {"blocks": [_of_block(records, place, block) for place, block in enumerate(self.blocks)]}

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
                Table(COLUMNS, [row for one in blocks for row in _rows(one)]),
            )
        ]


class SlotsWatch(LayerWatch):
    """Adds up how much each slot weighs; of a token, how much its heads lean on one slot."""

    def __init__(self, lookups: Sequence[Lookup], slots: int, start: int, counted: Tensor | None) -> None:
        import torch

        super().__init__(lookups, lambda lookup, given, found: found, lookups[0].keys.device, start, counted)
        self._weights, self._best = (torch.zeros(len(lookups), slots, dtype=torch.float64) for _ in range(2))
        self._largest: list[Tensor] = []

    def see(self, block: ScoredBlock) -> None:
        import torch

        largest = []
        for layer, calls in self.calls():
            slots, weights = (self.by_token(block, part) for part in zip(*calls, strict=True))
            self._weights[layer] += _added_up(slots, weights, self._weights.shape[1])
            first = slots[..., 0]
            self._best[layer] += _added_up(first, torch.ones_like(first), self._weights.shape[1])
            largest.append(weights[..., 0].float().mean(1))
        self._largest.append(torch.stack(largest).mean(0))

    def seen(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        import torch

        record = {
            "weights": [packed(one.numpy()) for one in self._weights],
            "best": [packed(one.numpy()) for one in self._best],
        }
        return {"slot_weight": torch.cat(self._largest)}, record


def _added_up(slots: Tensor, weights: Tensor, number: int) -> Tensor:
    """Weights by slot, float64 [number], on the CPU."""
    import torch

    return torch.bincount(slots.flatten().cpu(), weights.flatten().double().cpu(), number)
