"""Settings of the usual feed-forward layer; free of torch."""

from typing import Literal

from stages.models.layers.settings import SublayerSettings


class DenseSettings(SublayerSettings):
    """Two linear layers; their width and activation are the block's."""

    name: Literal["dense"] = "dense"
