"""How much attention layers remember, where that is a number of slots or entries; free of torch."""

from typing import TYPE_CHECKING

from stages.models.layers import STREAM_ATTENTION

if TYPE_CHECKING:
    from stages.models.config import BackboneConfig


def lengthened_layers() -> list[str]:
    """The attention layers whose number of slots or entries is a setting, `long_length`."""
    return [name for name in STREAM_ATTENTION.names() if "long_length" in STREAM_ATTENTION.settings(name).model_fields]


def asked_length(model: "BackboneConfig") -> int | None:
    """How many a description of a model asks for; None: it says nothing of that."""
    attention = getattr(model, "attention", None)
    return model.lengths.long_length if "long_length" in getattr(attention, "model_fields_set", ()) else None
