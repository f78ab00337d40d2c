"""Backbones and the language models made of them: tokens -> (f, g) -> log-probabilities."""

from stages.registry import Part, Registry


def _folder(name: str, settings: str, network: str) -> Part:
    here = f"stages.models.backbones.{name}"
    return Part(f"{here}.config:{settings}", f"{here}.network:{network}")


BACKBONES = Registry(
    "backbone",
    {
        "transformer": _folder("transformer", "TransformerConfig", "Transformer"),
        "transformer-xl": _folder("transformer_xl", "TransformerXLConfig", "TransformerXL"),
        "lstm": _folder("lstm", "LSTMConfig", "LSTM"),
    },
)
DEFAULT_BACKBONE = "transformer"
"""Where none is named."""
