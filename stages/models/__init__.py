"""Backbones and the language models made of them: tokens -> (f, g) -> log-probabilities."""

from stages.registry import Part, Registry

PACKAGE = "stages.models.backbones"
BACKBONES = Registry(
    "backbone",
    {
        "transformer": Part.within(
            "stages.models.backbones", "transformer_config:TransformerConfig", "transformer:Transformer"
        ),
        "transformer-xl": Part.within(
            "stages.models.backbones", "transformer_xl_config:TransformerXLConfig", "transformer_xl:TransformerXL"
        ),
        "lstm": Part.within(PACKAGE, "lstm_config:LSTMConfig", "lstm:LSTM"),
        "memory-transformer": Part.within(
            PACKAGE, "memory_transformer_config:MemoryTransformerConfig", "memory_transformer:MemoryTransformer"
        ),
        "memformer": Part.within(PACKAGE, "memformer_config:MemformerConfig", "memformer:Memformer"),
        "sru++": Part.within(PACKAGE, "sru_plus_plus_config:SRUPlusPlusConfig", "sru_plus_plus:SRUPlusPlus"),
        "encoder-decoder": Part.within(
            PACKAGE, "encoder_decoder_config:EncoderDecoderConfig", "encoder_decoder:EncoderDecoder"
        ),
        "huggingface": Part.within(
            "stages.models.backbones", "huggingface_config:HuggingFaceConfig", "huggingface:HuggingFace"
        ),
        "huggingface-encoder-decoder": Part.within(
            PACKAGE,
            "huggingface_encoder_decoder_config:HuggingFaceEncoderDecoderConfig",
            "huggingface_encoder_decoder:HuggingFaceEncoderDecoder",
        ),
        "text-encoder": Part.within(
            "stages.models.backbones", "text_encoder_config:TextEncoderConfig", "text_encoder:TextEncoder"
        ),
    },
)
IMPORTED = "huggingface"
"""The backbone whose weights never begin at random: they come from elsewhere."""
ENCODER = "text-encoder"
"""The backbone that is imported, too, and makes keys alone: it is never trained."""
TRANSLATOR = "huggingface-encoder-decoder"
"""The backbone that is imported, too, and reads sources."""
DEFAULT_BACKBONE = "transformer"
"""Where none is named."""
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
