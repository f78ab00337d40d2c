"""Probe of an SRU++: how much of their cells layers pass on, and how much they keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stages.diagnostics.probe import (
    EDGES,
    Figures,
    LayerProbe,
    LayerWatch,
    Sums,
    histogram_of_blocks,
)
from stages.models.backbones.stream_configs import SRUPlusPlusConfig
from stages.models.config import BackboneConfig

if TYPE_CHECKING:
    from torch import Tensor

    from stages.charts.data import Chart
    from stages.encoding.probe import ScoredBlock


class SRUProbe(LayerProbe):
    """Probe of the share of a cell that a layer passes on, and the share that it keeps."""

    name: ClassVar[str] = "sru_plus_plus"
    label: ClassVar[str] = "sru++"
    layer: ClassVar[str] = "stages.models.backbones.sru_plus_plus:Layer"
    columns: ClassVar[tuple[str, ...]] = ("cell_share",)

    @classmethod
    def blocks_of(cls, model: BackboneConfig) -> tuple[int, ...]:
        return tuple(range(1, model.layers + 1)) if isinstance(model, SRUPlusPlusConfig) else ()

    def constants(self, layer: Any) -> dict[str, Any]:
        alpha = layer.projection.alpha
        return {"alpha": None if alpha is None else float(alpha.detach())}

    def look(self, module: Any, arguments: Any, output: Any) -> Tensor:
        """Means over dimensions of r and f, [B, n, 2]."""
        import torch

        run = module.run(*arguments)
        forget = torch.sigmoid(run.forget + module.carry_forget * run.earlier)
        return torch.stack(
            [gate.transpose(0, 1).float().mean(2) for gate in (run.highway, forget)], 2
        )

    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        passed = []
        for number, calls in watch.calls():
            highway, forget = watch.by_token(block, calls).cpu().unbind(1)
            counts = np.histogram(highway.numpy(), EDGES)[0]
            watch.add(
                number, counts=counts, highway=highway.double().sum(), forget=forget.double().sum()
            )
            passed.append(highway)
        watch.mean_column("cell_share", passed)

    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """Means of r and f, the share of tokens in each twentieth of r, and α, null without
        attention.
        """
        return {
            "highway": float(sums["highway"] / tokens),
            "forget": float(sums["forget"] / tokens),
            "histogram": (sums["counts"] / tokens).tolist(),
            "alpha": sums["alpha"],
        }

    @classmethod
    def line(cls, block: Figures) -> str:
        return (
            f"passes on {block['highway']:.2f} of its cell, and keeps {block['forget']:.2f} a token"
        )

    @classmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        title = f"How much of their cells layers pass on, on {split}"
        gates = [block["highway"] for block in blocks]
        caption = "The share of tokens by the mean gate r of a layer; the rest of what goes up is its input."
        return histogram_of_blocks(
            "sru-plus-plus-cells", title, caption, blocks, gates, "share of the cell"
        )
