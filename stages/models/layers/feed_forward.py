"""The feed-forward half of a block."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from stages.models.layers.config import AttentionConfig
from stages.models.layers.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.ffn_width)
        self.down = nn.Linear(config.ffn_width, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        return self.down(self.dropout(self.activation(self.up(x))))
