"""The interface of a probe, and probes that observe layers while a model reads.

Does not import torch, since pages are drawn without a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, Histogram, Series
from stages.diagnostics.calls import Calls
from stages.encoding.probe import Observation, RangeProbe
from stages.models.config import BackboneConfig, model_of
from stages.models.devices import now
from stages.models.layers.settings import Place
from stages.registry import load

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.encoding.encode import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel


Options = Mapping[str, Any]
"""Values by name of an evaluation's setting; None: not asked for."""
Records = Sequence[Mapping[str, Any]]
"""Records of a probe, one for each range of a split, in order."""
Figures = Mapping[str, Any]
"""A part of `metrics.json`."""


class Probe(ABC):
    """A diagnostic of a method or a layer, one for each file of `stages.diagnostics`. An instance
    is for one model.
    """

    columns: ClassVar[tuple[str, ...]]
    """Names of the figures reported for every token."""

    # Before the work

    @classmethod
    @abstractmethod
    def open(cls, read: Mapping[str, Artifact], options: Options, split: str) -> Self | None:
        """The probe of the evaluated model; None if it does not apply.

        Args:
            read: artifacts that the evaluation reads, by role.
            options: settings completed by `stages.diagnostics.options.resolve_options`.
            split: the scored split.
        """

    # The work

    @abstractmethod
    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> RangeProbe:
        """Start watching a range that begins at token `start`; called before the model reads it.

        Args:
            model: the evaluated model.
            reader: reads memory into the range's hidden states; None: no memory enters them.
            counted: bool [n], tokens that count in figures; None: all.
        """

    @abstractmethod
    def metrics(self, records: Records) -> dict[str, Any]:
        """Compute the entry under the probe's name in `metrics.json`."""

    def curves(self, metrics: Figures, row: str) -> list[dict[str, Any]]:
        """Perplexity of the model alone, the table's `row`, against the setting that the probe
        varied.

        In the form of a report's `curves`.
        """
        return []

    def files(self, records: Records) -> dict[str, Any]:
        """Content of additional JSON files of the report, by file name."""
        return {}

    # After it

    @classmethod
    @abstractmethod
    def summary(cls, metrics: Figures) -> str:
        """One line that sums up the probe's entry in `metrics.json`."""

    @classmethod
    @abstractmethod
    def charts(cls, metrics: Figures, files: Mapping[str, Any]) -> list[Chart]:
        """Charts of the probe, their names after its own; none if there are no numbers.

        Args:
            metrics: the content of `metrics.json`.
            files: content of other JSON files of the report, by file name.
        """


Sums = Mapping[str, Any]
"""Sums over all counted tokens, and constants, of one layer: arrays by name."""


class SummingProbe(Probe):
    """A probe that sums figures of some layers over the counted tokens, block by block."""

    @final
    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> LayerWatch:
        return LayerWatch(self, self.layers(model), model, reader, start, counted)

    def layers(self, model: LanguageModel) -> Sequence[Any]:
        """The layers that are watched; empty: the sums are of no layer."""
        return []

    def part(self, layer: Any) -> nn.Module:
        """The part of a layer whose calls are observed."""
        watched: nn.Module = layer
        return watched

    def look(self, module: Any, arguments: Any, output: Any) -> Any:
        """The observation to keep of a call, from a module, its inputs and its output."""
        return output

    @abstractmethod
    def see(self, watch: LayerWatch, block: ScoredBlock) -> None:
        """Add the figures of a block to the sums and columns of its range."""

    def constants(self, layer: Any) -> dict[str, Any]:
        """Figures of a layer that do not depend on tokens, as JSON."""
        return {}

    def to_record(self, numbers: np.ndarray) -> Any:
        """A sum as JSON."""
        return numbers.tolist()

    def read(self, record: Any) -> Any:
        """The inverse of `to_record`."""
        return record

    @final
    def sums(self, records: Records) -> list[Sums]:
        """The sums of each layer over all ranges, and its constants."""
        sums = []
        for layers in zip(*(record["layers"] for record in records), strict=True):
            totals = {}
            for name in layers[0]:
                arrays = [self.read(layer[name]) for layer in layers]
                totals[name] = np.sum(arrays, axis=0)
            sums.append(totals)
        constants = records[0].get("constants") or [{}] * len(sums)
        return [totals | constant for totals, constant in zip(sums, constants, strict=True)]


@final
class LayerWatch(RangeProbe):
    """Sums figures of some layers over the counted tokens of a range, as a probe finds them.

    Its record has the number of `tokens`, the sums of each of `layers` by name, their `constants`,
    and `more`.
    """

    def __init__(
        self,
        probe: SummingProbe,
        layers: Sequence[Any],
        model: LanguageModel,
        reader: HiddenReader | None,
        start: int,
        counted: Tensor | None,
    ) -> None:
        """Args:
        reader: reads memory into the range's hidden states.
        start: the first token of the range.
        counted: bool [n], tokens that count in figures; None: all.
        """
        self.layers = layers
        self.model = model
        self.reader = reader
        self.more: dict[str, Any] = {"constants": [probe.constants(layer) for layer in layers]}
        self._probe = probe
        self._start = start
        self._counted = counted
        self._seconds = 0.0
        self._tokens = 0
        self._calls = Calls(map(probe.part, layers), probe.look, next(model.parameters()).device)
        self._sums: list[dict[str, Any]] = [{} for _ in layers] or [{}]
        self._columns: dict[str, list[Tensor]] = {}

    def calls(self) -> Iterator[tuple[int, list[Any]]]:
        """The number of each layer, and its observations since the last block, in the order of
        calls.
        """
        return enumerate(self._calls.take())

    def rows(self, block: ScoredBlock) -> Tensor | slice:
        """Index of the tokens of a block that count."""
        if self._counted is None:
            return slice(None)
        return self._counted[block.encoded.start - self._start : block.encoded.stop - self._start]

    def by_token(self, block: ScoredBlock, positions: Sequence[Tensor]) -> Tensor:
        """The rows of a block's counted tokens; `positions` holds the observations of each call,
        [B, n, …].
        """
        import torch

        return block.encoded.of_tokens(torch.cat(list(positions), 1))[self.rows(block)]

    def add(self, layer: int, **values: Any) -> None:
        """Add to sums of a layer, in float64: numbers, arrays or tensors."""
        for name, value in values.items():
            number = (
                value
                if isinstance(value, int | float | np.ndarray)
                else value.double().cpu().numpy()
            )
            self._sums[layer][name] = self._sums[layer].get(name, 0.0) + number

    def column(self, name: str, values: Tensor) -> None:
        """Append a figure of a block's counted tokens, [c], to its column."""
        self._columns.setdefault(name, []).append(values.float())

    def mean_column(self, name: str, layers: Sequence[Tensor]) -> None:
        """Append the mean over layers of a figure of a block's counted tokens, [c] for each layer."""
        import torch

        self.column(name, torch.stack(list(layers)).mean(0))

    def observe(self, block: ScoredBlock) -> None:
        started = now(block.log_p.device)
        self._probe.see(self, block)
        self._tokens += len(block.log_p[self.rows(block)])
        self._seconds += now(block.log_p.device) - started

    def observation(self) -> Observation:
        import torch

        self._calls.close()
        layers = []
        for sums in self._sums:
            totals = {name: np.asarray(total) for name, total in sums.items()}
            layers.append({name: self._probe.to_record(total) for name, total in totals.items()})
        record = {"tokens": self._tokens, "layers": layers, **self.more}
        columns = {name: torch.cat(parts) for name, parts in self._columns.items()}
        return Observation(columns, record, self._seconds + self._calls.seconds)


@dataclass(frozen=True)
class LayerProbe(SummingProbe):
    """A probe of one kind of layer, or of the blocks of one kind of backbone.

    `blocks`: numbers of the blocks with the layer, counted from 1. `chosen`: settings of the layer.
    """

    name: ClassVar[str]
    """Name in `PROBES`."""
    label: ClassVar[str] = ""
    """Name in summaries; empty: `name`."""
    place: ClassVar[Place] = "attention"
    settings: ClassVar[type]
    """Class of the settings of the layer, or of the backbone."""
    layer: ClassVar[str]
    """Class of the layer, `"module:object"`."""

    blocks: tuple[int, ...] = ()
    chosen: Any = None

    @final
    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Options, split: str) -> Self | None:
        model = model_of(read["model"])
        blocks = cls.blocks_of(model)
        return cls(blocks, getattr(model, cls.place, None)) if blocks else None

    @classmethod
    def blocks_of(cls, model: BackboneConfig) -> tuple[int, ...]:
        """Numbers of the blocks of a model that have the layer."""
        has_layer = isinstance(model.layer_settings(cls.place), cls.settings)
        return model.blocks_with(cls.place) if has_layer else ()

    @final
    def layers(self, model: LanguageModel) -> Sequence[Any]:
        kind = load(self.layer)
        return [part for part in model.modules() if isinstance(part, kind)]

    def metrics(self, records: Records) -> dict[str, Any]:
        """The figures of each block."""
        tokens = sum(record["tokens"] for record in records)
        by_block = zip(self.blocks, self.sums(records), strict=True)
        return {
            "blocks": [{"block": block, **self.figures(sums, tokens)} for block, sums in by_block]
        }

    @abstractmethod
    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """The figures of one block, JSON, from sums over `tokens` tokens."""

    @classmethod
    def summary(cls, metrics: Figures) -> str:
        """Every block with its `line`: `memsizer: block 1 reads 5.2 of 32 slots`."""
        lines = (f"block {block['block']} {cls.line(block)}" for block in metrics["blocks"])
        return f"{cls.label or cls.name}: {'; '.join(lines)}"

    @classmethod
    def line(cls, block: Figures) -> str:
        """A few words on the figures of a block, for the summary."""
        raise NotImplementedError

    @classmethod
    def charts(cls, metrics: Figures, files: Mapping[str, Any]) -> list[Chart]:
        """Charts of the blocks that have numbers to draw; empty if none has."""
        reported = metrics.get(cls.name) or {"blocks": []}
        blocks = [block for block in reported["blocks"] if cls.is_shown(block)]
        return cls.block_charts(blocks, reported, metrics["split"]) if blocks else []

    @classmethod
    def is_shown(cls, block: Figures) -> bool:
        """Whether a block has numbers that can be drawn."""
        return True

    @classmethod
    @abstractmethod
    def block_charts(cls, blocks: Sequence[Figures], reported: Figures, split: str) -> list[Chart]:
        """Charts of `blocks`; `reported` is the probe's whole entry in `metrics.json`."""


BINS = 20
"""Number of equal bins of [0, 1] in histograms."""
EDGES = [place / BINS for place in range(BINS + 1)]


def histogram_of_blocks(
    name: str,
    title: str,
    caption: str,
    blocks: Sequence[Figures],
    values: Sequence[float],
    across: str,
) -> list[Chart]:
    """The chart of the `histogram` of each block; `values`: the mean in each; `across`: the axis of
    bins.
    """
    series = [Series(f"block {block['block']}", block["histogram"]) for block in blocks]
    return [Chart(name, title, caption, Histogram(EDGES, series, float(np.mean(values)), across))]
