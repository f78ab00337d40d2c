"""Observations of modules of a model, one for each call. Does not import torch by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from stages.models.devices import now

if TYPE_CHECKING:
    import torch
    from torch import nn


class Calls:
    """Records observations of some modules of a model, one for each call."""

    def __init__(
        self,
        modules: Iterable[nn.Module],
        look: Callable[[Any, Any, Any], Any],
        device: torch.device,
    ) -> None:
        """Args:
        look: computes the observation to keep, from a module, its inputs and its output.
        device: device of the modules.
        """
        self.seconds = 0.0
        """Seconds spent on observing, which the model's own time includes."""
        self._look = look
        self._device = device
        self._held: list[list[Any]] = []
        self._handles = [module.register_forward_hook(self._keeper()) for module in modules]

    def _keeper(self) -> Callable[[Any, Any, Any], None]:
        import torch

        calls: list[Any] = []
        self._held.append(calls)

        @torch.no_grad()
        def keep(module: nn.Module, arguments: Any, output: Any) -> None:
            started = now(self._device)
            calls.append(self._look(module, arguments, output))
            self.seconds += now(self._device) - started

        return keep

    def take(self) -> list[list[Any]]:
        """Return and clear the observations of each module, in the order of calls."""
        calls = [list(kept_calls) for kept_calls in self._held]
        for kept_calls in self._held:
            kept_calls.clear()
        return calls

    def close(self) -> None:
        """Stop observing: remove the hooks."""
        for handle in self._handles:
            handle.remove()
