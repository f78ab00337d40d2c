"""The usual feed-forward layer of a block."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.layers.dropout import Dropout
from stages.models.layers.settings import BlockSizes, DenseSettings
from stages.models.layers.sublayer import FeedForward, initialize

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class Dense(FeedForward):
    """Two linear layers with an activation between them."""

    def __init__(self, config: BlockSizes, settings: DenseSettings) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.ffn_width)
        self.down = nn.Linear(config.ffn_width, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)

    def initialize(self, blocks: int) -> None:
        initialize(self, self.down, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        added: Tensor = self.down(self.dropout(self.activation(self.up(x))))
        return added
