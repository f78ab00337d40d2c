"""Settings of attention by distance; free of torch."""

from typing import TYPE_CHECKING, Literal

from stages.models.layers.settings import Nothing, StreamAttentionSettings

if TYPE_CHECKING:
    from stages.models.layers.config import AttentionConfig


class RelativeSettings(StreamAttentionSettings):
    """Attention by content and by distance (Transformer-XL); its sizes are the block's."""

    name: Literal["relative"] = "relative"

    def memory_spec(self, model: "AttentionConfig", context: int) -> Nothing:
        """Nothing but the cached inputs, which every block has."""
        return Nothing()
