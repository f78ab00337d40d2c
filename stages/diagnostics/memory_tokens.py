"""Memory tokens: where they look, and who looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, HeatMap, Share, Side, Table
from stages.diagnostics.probe import PlainProbe, Records
from stages.diagnostics.watching import LayerWatch
from stages.models.backbones.memory_transformer_config import MemoryTransformerConfig
from stages.models.config import model_of

if TYPE_CHECKING:
    from torch import Tensor

    from stages.encoding.hidden_memory import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.backbones.memory_transformer import Block
    from stages.models.language_model import LanguageModel

PARTS = 16
"""Equal parts of the positions before a segment, and of the segment, whose attention is reported apart."""


def _map(
    name: str, metrics: Mapping[str, Any], values: list[list[float]], rows: list[str], columns: list[str], title: str
) -> Chart:
    largest = max(max(row) for row in values) or 1.0
    across = "positions before a segment, the oldest first" if "before" in columns[-1] else "place in the segment"
    return Chart(
        f"memory-tokens-{name}",
        f"{title}, on {metrics['split']}",
        f"Shares of attention, means over heads and scored tokens; the darkest is {largest:.1%}.",
        HeatMap(
            [[value / largest for value in column] for column in zip(*values, strict=True)],
            Side(across, columns, turned=True),
            Side("memory tokens", rows),
            Share("none", f"{largest:.1%}"),
        ),
        Table(("", *columns), [(name, *row) for name, row in zip(rows, values, strict=True)]),
    )


@dataclass(frozen=True)
class MemoryTokensProbe(PlainProbe):
    """Open for a model that has memory tokens."""

    columns: ClassVar[tuple[str, ...]] = ("memory_tokens_attention",)

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        return cls() if isinstance(model, MemoryTransformerConfig) and model.memory_tokens else None

    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> TokensWatch:
        from stages.models.backbones.memory_transformer import Block

        blocks = [part for part in model.modules() if isinstance(part, Block)]
        length: Any = model.backbone.length
        return TokensWatch(blocks, length, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        """Shares of attention by block, means over heads and scored tokens."""
        tokens = sum(record["tokens"] for record in records)
        given = [
            np.sum([np.array(r["blocks"][n]["given"]) for r in records], 0) for n in range(len(records[0]["blocks"]))
        ]
        places = np.sum([record["places"] for record in records], 0)
        blocks = []
        for number, sums in enumerate(given):
            reads = [record["blocks"][number]["reads"] for record in records]
            to_memory, cached = sums[:, :-1], sums[:, -1].sum()
            blocks.append(
                {
                    "block": number + 1,
                    "memory": float(to_memory.sum()) / tokens,
                    "cached": float(cached) / tokens,
                    "segment": 1 - float(to_memory.sum() + cached) / tokens,
                    # [m, PARTS]: of tokens in a part of their segment; 0 where none was scored.
                    "read_by": (to_memory / np.maximum(places, 1)[:, None]).T.tolist(),
                    # [m, 1 + PARTS]: memory tokens, then parts of the cached positions.
                    "reads": None if reads[0] is None else (np.sum(reads, 0) / tokens).tolist(),
                }
            )
        return {"blocks": blocks}

    @classmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """`memory tokens: 12.1% of attention in block 1, 20.3% in block 2`."""
        shares = ", ".join(f"{one['memory']:.1%} of attention in block {one['block']}" for one in metrics["blocks"])
        return f"memory tokens: {shares}"

    @classmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        """Two maps a block, if there are numbers: from memory to text, where it writes, and from text to memory."""
        charts = []
        for one in (metrics.get("memory_tokens") or {"blocks": []})["blocks"]:
            number, rows = one["block"], [f"memory {n}" for n in range(1, len(one["read_by"]) + 1)]
            own = [f"segment {n}" for n in range(1, PARTS + 1)]
            before = ["memory", *(f"before {n}" for n in range(1, PARTS + 1))]
            if one["reads"] is not None and rows:
                charts.append(
                    _map(
                        f"{number}-reads", metrics, one["reads"], rows, before, f"Where memory of block {number} looks"
                    )
                )
            if rows:
                charts.append(
                    _map(f"{number}-read", metrics, one["read_by"], rows, own, f"Who looks at it in block {number}")
                )
        return charts


class TokensWatch(LayerWatch):
    """Adds up where tokens and memory tokens look, and by the place of a token in its segment."""

    def __init__(self, blocks: Sequence[Block], length: int, start: int, counted: Tensor | None) -> None:
        import torch

        device = next(blocks[0].parameters()).device
        super().__init__(blocks, lambda block, given, made: _seen(block, given, made, length), device, start, counted)
        self._m = blocks[0].memory_tokens
        self._given = torch.zeros(len(blocks), PARTS, self._m + 1, dtype=torch.float64)
        self._reads = torch.zeros(len(blocks), self._m, 1 + PARTS, dtype=torch.float64)
        self._places, self._tokens = torch.zeros(PARTS, dtype=torch.float64), 0
        self._writes = [block.writes for block in blocks]
        self._shares: list[Tensor] = []

    def see(self, block: ScoredBlock) -> None:
        import torch

        to_memory = []
        for number, calls in self.calls():
            looked = self.by_token(block, calls).double().cpu()
            place, given, reads = looked.tensor_split((1, self._m + 2), 1)
            self._given[number].index_add_(0, place[:, 0].long(), given)
            self._reads[number] += reads.sum(0).view(self._m, -1)
            to_memory.append(given[:, : self._m].sum(1).float())
        self._places += torch.bincount(place[:, 0].long(), minlength=PARTS)
        self._tokens += len(looked)
        self._shares.append(torch.stack(to_memory).mean(0).to(block.log_p.device))

    def seen(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        import torch

        blocks = [
            {"given": given.tolist(), "reads": reads.tolist() if writes else None}
            for given, reads, writes in zip(self._given, self._reads, self._writes, strict=True)
        ]
        record = {"tokens": self._tokens, "places": self._places.tolist(), "blocks": blocks}
        return {"memory_tokens_attention": torch.cat(self._shares)}, record


def _seen(block: Block, given: Any, output: Any, length: int) -> Tensor:
    """A row for each position: its part of the segment, attention to memory tokens and to E, where memory looks.


    [B, n, 1 + m + 1 + m (1 + PARTS)], means over heads.
    """
    import torch

    past, x, passage, _ = given
    m = block.memory_tokens
    with torch.no_grad():
        rows, tokens = x.tensor_split((m,), 1)
        weights = block.token_looks(past, output[0][:, :m] if block.bottleneck else rows, tokens, passage).weights
        shares, batch, n = weights.mean(0), len(x), tokens.shape[1]
        own = passage.place + n
        cached = shares[:, :, m : shares.shape[2] - own].sum(2, keepdim=True)
        reads = x.new_zeros(batch, m, 1 + PARTS)
        if block.writes:
            looks = block.memory_looks(past, rows, passage).weights.mean(0)
            parts = [looks[:, :, :m], *looks[:, :, m:].tensor_split(PARTS, 2)]
            reads = torch.stack([part.sum(2) for part in parts], 2)
        place = (passage.place + torch.arange(n, device=x.device)) * PARTS // length
        columns = (place.expand(batch, n)[:, :, None], shares[:, :, :m], cached)
        return torch.cat((*columns, reads.flatten(1)[:, None].expand(-1, n, -1)), 2)
