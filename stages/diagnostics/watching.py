"""How probes look at layers while a model reads, and which of a block's tokens count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from stages.encoding.clock import now

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

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
