"""Settings of the encoder-decoder; free of torch."""

from typing import Any, Literal, Self

from pydantic import model_validator

from stages.models.config import Reads, Size, Stateless
from stages.models.layers.settings import FEED_FORWARD_KEYS, AttentionConfig, NoLookupSettings, SoftmaxSettings


class EncoderDecoderConfig(Stateless, AttentionConfig):
    """A pre-norm Transformer that reads a source sentence, and writes its translation token by token.

    `layers` and `feed_forward` are the decoder's; blocks of the encoder have the usual feed-forward layer.
    """

    backbone: Literal["encoder-decoder"] = "encoder-decoder"
    encoder_layers: Size = 2
    activation: Literal["gelu", "relu"] = "relu"
    lookup: NoLookupSettings = NoLookupSettings()
    attention: SoftmaxSettings = SoftmaxSettings()
    """The only one there is, as there is no lookup."""

    @model_validator(mode="after")
    def _width_is_even(self) -> Self:
        if self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        return self

    @model_validator(mode="after")
    def _full_softmax(self) -> Self:
        if self.cutoffs:
            raise ValueError("vocabularies of a translation model are small: leave cutoffs out")
        return self

    @property
    def reads(self) -> Reads:
        return Reads(FEED_FORWARD_KEYS, source=True, decodes=True)

    def sizes(self, segment_length: int) -> dict[str, Any]:
        return {}
