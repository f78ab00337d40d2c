"""Backbones and the language models made of them: tokens -> (f, g) -> log-probabilities."""

from stages.registry import Registry

BACKBONES = Registry(
    "backbone",
    {
        "transformer": "stages.models.transformer:Transformer",
        "transformer-xl": "stages.models.transformer_xl:TransformerXL",
        "lstm": "stages.models.lstm:LSTM",
    },
)
