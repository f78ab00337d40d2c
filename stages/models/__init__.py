"""Backbones and the language models made of them: tokens -> (f, g) -> log-probabilities."""

from stages.registry import Part, Registry

PACKAGE = "stages.models.backbones"
BACKBONES = Registry(
    "backbone",
    {
        "transformer": Part.within(PACKAGE, "window_configs:TransformerConfig", "transformer:Transformer"),
        "transformer-xl": Part.within(PACKAGE, "stream_configs:TransformerXLConfig", "transformer_xl:TransformerXL"),
        "lstm": Part.within(PACKAGE, "stream_configs:LSTMConfig", "lstm:LSTM"),
        "memory-transformer": Part.within(
            PACKAGE, "stream_configs:MemoryTransformerConfig", "memory_transformer:MemoryTransformer"
        ),
        "memformer": Part.within(PACKAGE, "stream_configs:MemformerConfig", "memformer:Memformer"),
        "sru++": Part.within(PACKAGE, "stream_configs:SRUPlusPlusConfig", "sru_plus_plus:SRUPlusPlus"),
        "encoder-decoder": Part.within(
            PACKAGE, "window_configs:EncoderDecoderConfig", "encoder_decoder:EncoderDecoder"
        ),
        "huggingface": Part.within(PACKAGE, "window_configs:HuggingFaceConfig", "huggingface:HuggingFace"),
        "huggingface-encoder-decoder": Part.within(
            PACKAGE, "window_configs:HuggingFaceEncoderDecoderConfig", "huggingface:HuggingFaceEncoderDecoder"
        ),
        "text-encoder": Part.within(PACKAGE, "window_configs:TextEncoderConfig", "huggingface:TextEncoder"),
    },
)
IMPORTED = "huggingface"
"""The backbone whose weights never begin at random: they come from elsewhere."""
ENCODER = "text-encoder"
"""The backbone that is imported, too, and scores no tokens: it makes keys, and learns labels."""
TRANSLATOR = "huggingface-encoder-decoder"
"""The backbone that is imported, too, and reads sources."""
DEFAULT_BACKBONE = "transformer"
"""Where none is named."""
FACTORED = (IMPORTED, ENCODER, DEFAULT_BACKBONE)
"""The backbones whose layers leave their matrices to `nn.Linear`, beside which factors can stand (LoRA)."""
NAMED = {
    "compressive-transformer": "compressive",
    "memorizing-transformer": "memorizing",
    "infinity-former": "infinity",
}
"""Names of a Transformer-XL with one kind of attention, and which."""


def trainable_backbones() -> list[str]:
    """The backbones that training can begin with."""
    return [name for name in BACKBONES.names() if name not in (IMPORTED, ENCODER, TRANSLATOR)]


def backbone_of(name: str) -> str:
    """The backbone that a name stands for."""
    return "transformer-xl" if name in NAMED else name
