"""Backbones and the language models made of them: tokens -> (f, g) -> log-probabilities."""

from stages.registry import Registry

BACKBONES = Registry(
    "backbone",
    {
        "transformer": "stages.models.backbones.transformer.network:Transformer",
        "transformer-xl": "stages.models.backbones.transformer_xl.network:TransformerXL",
        "lstm": "stages.models.backbones.lstm.network:LSTM",
    },
)
