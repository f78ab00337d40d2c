"""The interface of a probe, and probes that observe layers while a model reads.

Does not import torch, since pages are drawn without a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.charts.data import Chart, Histogram, Series
from stages.encoding.probe import Observation, RangeProbe
from stages.models.config import BackboneConfig, model_of
from stages.models.devices import now
from stages.models.layers.settings import AttentionConfig, Place
from stages.registry import load

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from stages.encoding.encode import HiddenReader
    from stages.encoding.probe import ScoredBlock
    from stages.models.language_model import LanguageModel


Options = Mapping[str, Any]
"""Values by name of an evaluation's setting; None: not asked for."""
Records = Sequence[Mapping[str, Any]]
"""Records of a probe, one for each range of a split, in order."""


class Probe(ABC):
    """A diagnostic of a method or a layer, one for each file of `stages.diagnostics`. An instance is for one model."""

    columns: ClassVar[tuple[str, ...]]
    """Names of the figures reported for every token."""

    # Before the work

    @classmethod
    @abstractmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
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

    def curves(self, metrics: Mapping[str, Any], row: str) -> list[dict[str, Any]]:
        """Perplexity of the model alone, the table's `row`, against the setting that the probe varied.

        In the form of a report's `curves`.
        """
        return []

    def files(self, records: Records) -> dict[str, Any]:
        """Content of additional JSON files of the report, by file name."""
        return {}

    # After it

    @classmethod
    @abstractmethod
    def summary(cls, metrics: Mapping[str, Any]) -> str:
        """One line that sums up the probe's entry in `metrics.json`."""

    @classmethod
    @abstractmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        """Charts of the probe; none if there are no numbers.

        Args:
            metrics: the content of `metrics.json`.
            files: content of other JSON files of the report, by file name.
        """


Sums = Mapping[str, Any]
"""Sums over all counted tokens, and constants, of one layer: arrays by name."""


class Calls:
    """Records observations of some modules of a model, one for each call."""

    def __init__(
        self, modules: Iterable[nn.Module], look: Callable[[Any, Any, Any], Any], device: torch.device
    ) -> None:
        """Args:
        look: computes the observation to keep, from a module, its inputs and its output.
        device: device of the modules.
        """
        self.seconds = 0.0
        """Seconds spent on observing, which the model's own time includes."""
        self._look, self._held, self._device = look, list[list[Any]](), device
        self._handles = [module.register_forward_hook(self._keeper()) for module in modules]

    def _keeper(self) -> Callable[[Any, Any, Any], None]:
        held: list[Any] = []
        self._held.append(held)

        def keep(module: nn.Module, given: Any, output: Any) -> None:
            started = now(self._device)
            held.append(self._look(module, given, output))
            self.seconds += now(self._device) - started

        return keep

    def take(self) -> list[list[Any]]:
        """Return and clear the observations of each module, in the order of calls."""
        taken = [list(held) for held in self._held]
        for held in self._held:
            held.clear()
        return taken

    def close(self) -> None:
        """Stop observing: remove the hooks."""
        for handle in self._handles:
            handle.remove()


class SummingProbe(Probe):
    """A probe whose records come from a `LayerWatch`."""

    def sums(self, records: Records) -> list[Sums]:
        """The sums of each layer over all ranges."""
        by_layer = zip(*(record["layers"] for record in records), strict=True)
        return [{name: np.sum([self.read(one[name]) for one in each], axis=0) for name in each[0]} for each in by_layer]

    def read(self, kept: Any) -> Any:
        """The inverse of `LayerWatch.kept`: the numbers of a sum that was stored as JSON."""
        return kept


@dataclass(frozen=True)
class LayerProbe(SummingProbe):
    """A probe of one kind of layer.

    `blocks`: numbers of the blocks with the layer, counted from 1. `chosen`: settings of the layer.
    """

    name: ClassVar[str]
    """Name in `PROBES`."""
    place: ClassVar[Place] = "attention"
    settings: ClassVar[type]
    """Class of the layer's settings."""
    layer: ClassVar[str]
    """Class of the layer, `"module:object"`."""
    watching: ClassVar[type[LayerWatch]]

    blocks: tuple[int, ...] = ()
    chosen: Any = None

    @classmethod
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        blocks = cls.blocks_of(model)
        return cls(blocks, getattr(model, cls.place, None)) if blocks else None

    @classmethod
    def blocks_of(cls, model: BackboneConfig) -> tuple[int, ...]:
        """Numbers of the blocks of a model that have the layer."""
        if isinstance(model, AttentionConfig) and isinstance(getattr(model, cls.place), cls.settings):
            return model.blocks_with(cls.place)
        return ()

    @final
    def watch(
        self, model: LanguageModel, reader: HiddenReader | None, start: int, counted: Tensor | None
    ) -> LayerWatch:
        kind = load(self.layer)
        layers = [part for part in model.modules() if isinstance(part, kind)]
        return self.watching(layers, model, start, counted)

    def metrics(self, records: Records) -> dict[str, Any]:
        """The figures of each block."""
        tokens, sums = sum(record["tokens"] for record in records), self.sums(records)
        constants = records[0].get("constants") or [{}] * len(sums)
        return {
            "blocks": [
                {"block": block, **self.figures({**one, **constant}, tokens)}
                for block, one, constant in zip(self.blocks, sums, constants, strict=True)
            ]
        }

    @abstractmethod
    def figures(self, sums: Sums, tokens: int) -> dict[str, Any]:
        """The figures of one block, JSON, from sums over `tokens` tokens."""

    @classmethod
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        """Charts of the blocks that have numbers to draw; empty if none has."""
        reported = metrics.get(cls.name) or {"blocks": []}
        blocks = [one for one in reported["blocks"] if cls.is_shown(one)]
        return cls.drawn(blocks, reported, metrics["split"]) if blocks else []

    @classmethod
    def is_shown(cls, block: Mapping[str, Any]) -> bool:
        """Whether a block has numbers that can be drawn."""
        return True

    @classmethod
    @abstractmethod
    def drawn(cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str) -> list[Chart]:
        """Charts of `blocks`; `reported` is the probe's whole entry in `metrics.json`."""


BINS = 20
"""Number of equal bins of [0, 1] in histograms."""
EDGES = [place / BINS for place in range(BINS + 1)]


def histogram_of_blocks(
    name: str, title: str, caption: str, blocks: Sequence[Mapping[str, Any]], values: Sequence[float], across: str
) -> list[Chart]:
    """The chart of the `histogram` of each block; `values`: the mean in each."""
    series = [Series(f"block {one['block']}", one["histogram"]) for one in blocks]
    return [Chart(name, title, caption, Histogram(EDGES, series, float(np.mean(values)), across))]


class LayerWatch(RangeProbe):
    """Sums figures of some layers over the counted tokens, block by block.

    Its record has the number of `tokens`, the sums of each of `layers` by name, and `more`: `constants` of layers,
    for example.
    """

    def __init__(self, layers: Sequence[Any], model: LanguageModel, start: int, counted: Tensor | None) -> None:
        """Args:
        start: the first token of the range.
        counted: bool [n], tokens that count in figures; None: all.
        """
        self.layers, self.model = layers, model
        self.more: dict[str, Any] = {}
        self._calls = Calls(map(self.module, layers), self.look, next(model.parameters()).device)
        self._start, self._counted, self._seconds, self._tokens = start, counted, 0.0, 0
        self._sums: list[dict[str, Any]] = [{} for _ in layers] or [{}]
        self._columns: dict[str, list[Tensor]] = {}

    def module(self, layer: Any) -> nn.Module:
        """The part of a layer that is watched."""
        watched: nn.Module = layer
        return watched

    def look(self, module: Any, given: Any, output: Any) -> Any:
        """The observation to keep of a call, from a module, its inputs and its output."""
        return output

    @abstractmethod
    def see(self, block: ScoredBlock) -> None:
        """Add the figures of the layers for a block, through `add` and `column`."""

    def calls(self) -> Iterator[tuple[int, list[Any]]]:
        """The number of each layer, and its observations since the last block, in the order of calls."""
        return enumerate(self._calls.take())

    def rows(self, block: ScoredBlock) -> Tensor | slice:
        """Index of the tokens of a block that count."""
        if self._counted is None:
            return slice(None)
        return self._counted[block.encoded.start - self._start : block.encoded.stop - self._start]

    def by_token(self, block: ScoredBlock, positions: Sequence[Tensor]) -> Tensor:
        """The rows of a block's counted tokens; `positions` holds the observations of each call, [B, n, …]."""
        import torch

        return block.encoded.of_tokens(torch.cat(list(positions), 1))[self.rows(block)]

    def add(self, layer: int, **values: Any) -> None:
        """Add to sums of a layer, in float64: numbers, arrays or tensors."""
        for name, value in values.items():
            number = value if isinstance(value, int | float | np.ndarray) else value.double().cpu().numpy()
            self._sums[layer][name] = self._sums[layer].get(name, 0.0) + number

    def column(self, **values: Tensor) -> None:
        """Append figures of a block's counted tokens, [c] each, to the columns of these names."""
        for name, value in values.items():
            self._columns.setdefault(name, []).append(value.float())

    def mean_column(self, name: str, layers: Sequence[Tensor]) -> None:
        """Append the mean over layers of a figure of a block's counted tokens, [c] for each layer."""
        import torch

        self.column(**{name: torch.stack(list(layers)).mean(0)})

    def kept(self, numbers: np.ndarray) -> Any:
        """A sum as JSON."""
        return numbers.tolist()

    @final
    def observe(self, block: ScoredBlock) -> None:
        started = now(block.log_p.device)
        self.see(block)
        self._tokens += len(block.log_p[self.rows(block)])
        self._seconds += now(block.log_p.device) - started

    @final
    def observation(self) -> Observation:
        import torch

        self._calls.close()
        layers = [{name: self.kept(np.asarray(value)) for name, value in sums.items()} for sums in self._sums]
        record = {"tokens": self._tokens, "layers": layers, **self.more}
        columns = {name: torch.cat(parts) for name, parts in self._columns.items()}
        return Observation(columns, record, self._seconds + self._calls.seconds)
