"""A Transformer without attention, to compare attentions with:
`MEMLM_PARTS=tests.benchmarks.no_attention`.

memlm train TOKENS --backbone transformer --set model.attention.name=no-attention
"""

from typing import Literal

import torch
from torch import Tensor

from stages.models.layers import WINDOW_ATTENTION
from stages.models.layers.settings import AttentionConfig, SublayerSettings
from stages.models.layers.sublayer import WindowAttention
from stages.registry import Part


class NoAttentionSettings(SublayerSettings):
    """Adds nothing: each position is predicted from the token before it alone."""

    name: Literal["no-attention"] = "no-attention"


class NoAttention(WindowAttention):
    """Adds nothing."""

    def __init__(self, config: AttentionConfig, settings: NoAttentionSettings) -> None:
        super().__init__()

    def initialize(self, blocks: int) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


WINDOW_ATTENTION.targets["no-attention"] = Part(
    f"{__name__}:NoAttentionSettings", f"{__name__}:NoAttention"
)
