"""Probes that look at layers while a model reads, and which of a block's tokens count. Free of torch at import."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

from stages.artifacts.artifact import Artifact
from stages.diagnostics.probe import PlainProbe
from stages.encoding.clock import now
from stages.encoding.probe import Observation, RangeProbe
from stages.models.config import model_of
from stages.models.layers.settings import AttentionConfig, Place

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from stages.charts.data import Chart
    from stages.encoding.probe import ScoredBlock


def counted_rows(counted: Tensor | None, start: int, block: ScoredBlock) -> Tensor | slice:
    """Which tokens of a block count.

    Args:
        counted: bool [n], of the tokens of a range; None: all.
        start: the first token of the range.
    """
    if counted is None:
        return slice(None)
    return counted[block.encoded.start - start : block.encoded.stop - start]


class Calls:
    """Records observations of some of a model's modules, call after call."""

    def __init__(
        self, modules: Iterable[nn.Module], look: Callable[[Any, Any, Any], Any], device: torch.device
    ) -> None:
        """Args:
        look: makes what is kept of a module, what it was given, and what it gave.
        device: where the modules work.
        """
        self.seconds = 0.0
        """Time spent on observing; the model's calls last longer by this."""
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
        """Hand out and clear the observations of each module, call after call."""
        taken = [list(held) for held in self._held]
        for held in self._held:
            held.clear()
        return taken

    def close(self) -> None:
        """Look no more."""
        for handle in self._handles:
            handle.remove()


@dataclass(frozen=True)
class LayerProbe(PlainProbe):
    """A probe of one kind of layer.

    `blocks`: those that have it, counted from 1. `chosen`: its settings.
    """

    name: ClassVar[str]
    """Name in `PROBES`."""
    place: ClassVar[Place] = "attention"
    settings: ClassVar[type]
    """Class of the layer's settings."""

    blocks: tuple[int, ...]
    chosen: Any = None

    @classmethod
    @final
    def open(cls, read: Mapping[str, Artifact], options: Mapping[str, Any], split: str) -> Self | None:
        model = model_of(read["model"])
        chosen = getattr(model, cls.place) if isinstance(model, AttentionConfig) else None
        if not isinstance(model, AttentionConfig) or not isinstance(chosen, cls.settings):
            return None
        return cls(model.blocks_with(cls.place), chosen)

    @classmethod
    @final
    def charts(cls, metrics: Mapping[str, Any], files: Mapping[str, Any]) -> list[Chart]:
        """Charts of the blocks that have anything to show; none without."""
        reported = metrics.get(cls.name) or {"blocks": []}
        blocks = [one for one in reported["blocks"] if cls.is_shown(one)]
        return cls.drawn(blocks, reported, metrics["split"]) if blocks else []

    @classmethod
    def is_shown(cls, block: Mapping[str, Any]) -> bool:
        """Whether there are numbers of a block that can be drawn."""
        return True

    @classmethod
    @abstractmethod
    def drawn(cls, blocks: Sequence[Mapping[str, Any]], reported: Mapping[str, Any], split: str) -> list[Chart]:
        """Charts of some blocks of what is reported under the probe's name."""


class LayerWatch(RangeProbe):
    """Adds up, block after block, what some of a model's modules do with the tokens that count."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        look: Callable[[Any, Any, Any], Any],
        device: torch.device,
        start: int,
        counted: Tensor | None,
    ) -> None:
        """`look`, `device`: as in `Calls`; `start`, `counted`: as in `counted_rows`."""
        self._calls, self._start, self._counted, self._seconds = Calls(modules, look, device), start, counted, 0.0

    @final
    def observe(self, block: ScoredBlock) -> None:
        started = now(block.log_p.device)
        self.see(block)
        self._seconds += now(block.log_p.device) - started

    @final
    def observation(self) -> Observation:
        self._calls.close()
        columns, record = self.seen()
        return Observation(columns, record, self._seconds + self._calls.seconds)

    def by_token(self, block: ScoredBlock, positions: Sequence[Tensor]) -> Tensor:
        """The rows of a block's counted tokens among what was kept call after call, [B, n, …] each."""
        import torch

        return block.encoded.of_tokens(torch.cat(list(positions), 1))[counted_rows(self._counted, self._start, block)]

    def calls(self) -> Iterator[tuple[int, list[Any]]]:
        """The number of each module, and what was kept of it since the block before, call after call."""
        return enumerate(self._calls.take())

    @abstractmethod
    def see(self, block: ScoredBlock) -> None:
        """Add what the modules did with a block."""

    @abstractmethod
    def seen(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        """Columns and record of an `Observation`."""
