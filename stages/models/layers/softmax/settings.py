"""Settings of causal attention; free of torch."""

from typing import Literal

from stages.models.layers.settings import SublayerSettings


class SoftmaxSettings(SublayerSettings):
    """Every position of a window attends to itself and those before it; its sizes are the block's."""

    name: Literal["softmax"] = "softmax"
