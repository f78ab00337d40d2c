"""How much attention layers remember, where that is a number of slots or entries; free of torch."""

from typing import TYPE_CHECKING

from stages.models.layers import STREAM_ATTENTION
from stages.models.layers.settings import StreamAttentionSettings

if TYPE_CHECKING:
    from stages.models.config import BackboneConfig


def remembered_lengths() -> dict[str, str]:
    """The setting that says how many, of each attention layer that has one."""
    settings = {name: STREAM_ATTENTION.settings(name) for name in STREAM_ATTENTION.names()}
    return {name: layer.remembered for name, layer in settings.items() if layer.remembered is not None}


def asked_length(model: "BackboneConfig") -> int | None:
    """How many a description of a model asks for; None: it says nothing of that."""
    attention = getattr(model, "attention", None)
    if not isinstance(attention, StreamAttentionSettings) or attention.remembered not in attention.model_fields_set:
        return None
    return attention.long_length
