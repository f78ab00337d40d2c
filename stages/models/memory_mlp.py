"""An MLP that recalls what neighbours say from a model's representation of the context."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models.memory_mlp_settings import MemoryMlpSettings


class MlpBlock(nn.Module):
    """x + W₂ gelu(W₁ norm(x))."""

    def __init__(self, width: int, ffn_width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, ffn_width)
        self.outer = nn.Linear(ffn_width, width)
        # So small at first that the blocks together begin as the identity.
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Float[Tensor, "N d"]) -> Float[Tensor, "N d"]:
        return x + self.outer(F.gelu(self.inner(self.norm(x))))


class MemoryMlp(nn.Module):
    """Keys [N, d] of a model -> hidden states [N, d] that its softmax reads.

    Source: Wei et al. 2025 (MLP Memory, arXiv:2508.01832).
    """

    def __init__(self, width: int, settings: MemoryMlpSettings) -> None:
        super().__init__()
        self.key = settings.key
        ffn_width = settings.ffn_width or 4 * width
        self.blocks = nn.Sequential(*(MlpBlock(width, ffn_width) for _ in range(settings.layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, keys: Float[Tensor, "N d"]) -> Float[Tensor, "N d"]:
        """Hidden states whose distribution is that of the memory."""
        return self.norm(self.blocks(keys))
