"""Causal self-attention of a window."""

from torch import Tensor, nn

from stages.models.layers.config import AttentionConfig
from stages.models.layers.initialization import initialize
from stages.models.layers.softmax.kernel import causal_attention
from stages.models.layers.softmax.settings import SoftmaxSettings
from stages.models.layers.sublayer import WindowAttention


class SoftmaxAttention(WindowAttention):
    """Every position attends to itself and those before it."""

    def __init__(self, config: AttentionConfig, settings: SoftmaxSettings) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def initialize(self, blocks: int) -> None:
        initialize(self, self.out, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]."""
        # Taken apart before it is transposed: so their gradients are put together in place of being copied once more.
        q, k, v = (part.transpose(1, 2) for part in self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2))
        y = causal_attention(q, k, v, self.dropout if self.training else 0.0)
        attended: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return attended
