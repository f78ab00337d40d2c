"""Settings of the layers that several backbones are made of; free of torch."""

from typing import Literal, Self

from pydantic import model_validator

from stages.models.config import BackboneConfig, Probability, Size


class AttentionConfig(BackboneConfig):
    """Blocks of self-attention and of a feed-forward layer, each on the normalized residual stream."""

    layers: Size = 2
    heads: Size = 4
    ffn_width: Size = 512
    activation: Literal["gelu", "relu"] = "gelu"
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    """Inside the feed-forward block, after its activation."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self
