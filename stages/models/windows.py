"""How a model reads a stream, as one value. Free of torch."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Lengths(NamedTuple):
    """Positions before its segment that an input attends to, and slots or entries that layers remember beyond.

    None: what is carried has no such length.
    """

    mem_length: int | None = None
    long_length: int | None = None


class WindowSettings(NamedTuple):
    """Inputs that a window reads, inputs between the starts of two windows, and what is carried beyond.

    A backbone that attends to a number of positions before its segment, `mem_length`, has segments of `context` inputs;
    its layers may remember more, `long_length` of what they count. None: of others.
    """

    context: int
    stride: int
    mem_length: int | None = None
    long_length: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "WindowSettings":
        """Those of a datastore, or of an evaluation, all resolved."""
        return cls(settings["context"], settings["stride"], settings.get("mem_length"), settings.get("long_length"))
