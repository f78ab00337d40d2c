"""How probes look at layers while a model reads, and which of a block's tokens they are to tell of."""

from collections.abc import Iterable
from typing import Any

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


class Outputs:
    """What some modules gave in each call since it was asked for last."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._held: list[list[Any]] = []
        self._handles = [module.register_forward_hook(self._keeper()) for module in modules]

    def _keeper(self) -> Any:
        held: list[Any] = []
        self._held.append(held)
        return lambda module, inputs, output: held.append(output)

    def take(self) -> list[list[Any]]:
        """Of each module, call after call."""
        taken = [list(held) for held in self._held]
        for held in self._held:
            held.clear()
        return taken

    def close(self) -> None:
        """Look no more."""
        for handle in self._handles:
            handle.remove()
