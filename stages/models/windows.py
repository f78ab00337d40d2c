"""How a model reads a stream, as one value. Free of torch."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class WindowSettings(NamedTuple):
    """Inputs that a window reads, inputs between the starts of two windows, and positions that are carried.

    A backbone that attends to a number of positions before its segment has segments of `context` inputs; for others
    `mem_length` is None.
    """

    context: int
    stride: int
    mem_length: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "WindowSettings":
        """Those of a datastore, or of an evaluation, all resolved."""
        return cls(settings["context"], settings["stride"], settings.get("mem_length"))
