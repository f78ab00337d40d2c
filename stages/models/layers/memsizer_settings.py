"""Settings of MemSizer; free of torch."""

from typing import ClassVar, Literal

from stages.models.config import Size
from stages.models.layers.settings import SublayerSettings


class MemSizerSettings(SublayerSettings):
    """A few slots that sum up the window so far, in place of attention; heads are the block's.

    Source: Zhang and Cai 2022 (arXiv:2203.12644).
    """

    recurrent: ClassVar[bool] = True

    name: Literal["memsizer"] = "memsizer"
    slots: Size = 32
    """k, what a position reads and writes."""
    chunk: Size = 64
    """Positions whose products with each other are made whole; any number gives the same figures."""
