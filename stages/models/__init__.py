"""Backbones, and language models built on them: tokens -> (f, g) -> log-probabilities."""

from stages.registry import Part, Registry

PACKAGE = "stages.models.backbones"
BACKBONES = Registry(
    "backbone",
    {
        "transformer": Part.within(
            PACKAGE, "window_configs:TransformerConfig", "transformer:Transformer"
        ),
        "transformer-xl": Part.within(
            PACKAGE, "stream_configs:TransformerXLConfig", "transformer_xl:TransformerXL"
        ),
        "lstm": Part.within(PACKAGE, "stream_configs:LSTMConfig", "lstm:LSTM"),
        "memory-transformer": Part.within(
            PACKAGE,
            "stream_configs:MemoryTransformerConfig",
            "memory_transformer:MemoryTransformer",
        ),
        "memformer": Part.within(PACKAGE, "stream_configs:MemformerConfig", "memformer:Memformer"),
        "sru++": Part.within(
            PACKAGE, "stream_configs:SRUPlusPlusConfig", "sru_plus_plus:SRUPlusPlus"
        ),
        "encoder-decoder": Part.within(
            PACKAGE, "window_configs:EncoderDecoderConfig", "encoder_decoder:EncoderDecoder"
        ),
        "huggingface": Part.within(
            PACKAGE, "window_configs:HuggingFaceConfig", "huggingface:HuggingFace"
        ),
        "huggingface-encoder-decoder": Part.within(
            PACKAGE,
            "window_configs:HuggingFaceEncoderDecoderConfig",
            "huggingface:HuggingFaceEncoderDecoder",
        ),
        "text-encoder": Part.within(
            PACKAGE, "window_configs:TextEncoderConfig", "huggingface:TextEncoder"
        ),
    },
)
IMPORTED = "huggingface"
"""Backbone of imported causal language models."""
ENCODER = "text-encoder"
"""Backbone of imported encoders, which make keys and learn labels, but score no tokens."""
TRANSLATOR = "huggingface-encoder-decoder"
"""Backbone of imported translation models."""
DEFAULT_BACKBONE = "transformer"
"""Backbone if none is named."""
FACTORED = (IMPORTED, ENCODER, DEFAULT_BACKBONE)
"""Backbones that support LoRA, because their layers use `nn.Linear`."""
NAMED = {
    "compressive-transformer": "compressive",
    "memorizing-transformer": "memorizing",
    "infinity-former": "infinity",
}
"""Names for a Transformer-XL with a particular attention layer, and the name of that layer."""


def trainable_backbones() -> list[str]:
    """Names of the backbones that can be trained from random weights."""
    return [name for name in BACKBONES.names() if name not in (IMPORTED, ENCODER, TRANSLATOR)]


def backbone_of(name: str) -> str:
    """The registered backbone for a name, which may be one of NAMED."""
    return "transformer-xl" if name in NAMED else name
