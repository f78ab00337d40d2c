"""What a language model is made of; free of torch."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.config import Settings

Size = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class TransformerConfig(Settings):
    """A pre-norm decoder Transformer with a full or an adaptive vocabulary."""

    backbone: Literal["transformer"] = "transformer"
    vocab_size: Size | None = None
    """Token types V; None: those of the training tokens, filled in when training is resolved."""
    layers: Size = 2
    width: Size = 128
    """d, the size of hidden states and of word embeddings."""
    heads: Size = 4
    ffn_width: Size = 512
    activation: Literal["gelu", "relu"] = "gelu"
    positions: Literal["learned", "sinusoidal"] = "learned"
    max_positions: Size | None = None
    """Longest window that learned positions can read; None: the segment length of training."""

    dropout: Probability = 0.1
    """Of embeddings and of what each block adds to the residual stream."""
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    """Inside the feed-forward block, after its activation."""

    cutoffs: tuple[Size, ...] = ()
    """Adaptive input and softmax: frequency ranks where clusters end, increasing; empty: full softmax."""
    factor: Size = 4
    """Cluster c has embeddings of width d / factor^c."""
    tied: bool = True
    """Input and output share embeddings (and, if adaptive, projections)."""
    tail_dropout: Probability = 0.0
    """Of the projected hidden states that score the clusters after the first."""

    @model_validator(mode="after")
    def _fits_together(self) -> "TransformerConfig":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        if any(b <= a for a, b in pairwise(self.cutoffs)):
            raise ValueError(f"cutoffs must increase, but are {list(self.cutoffs)}")
        if self.cutoffs and self.width // self.factor ** len(self.cutoffs) < 1:
            raise ValueError(
                f"width {self.width} cannot be divided by factor {self.factor} for each of {len(self.cutoffs)} cutoffs"
            )
        return self


ModelConfig = TransformerConfig
"""Any model: the union of the backbones' configurations, told apart by `backbone`."""
