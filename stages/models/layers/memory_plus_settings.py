"""Settings of Memory+; free of torch."""

from typing import Literal

from stages.models.layers.product_keys_settings import ProductKeysSettings


class MemoryPlusSettings(ProductKeysSettings):
    """Product keys whose values all blocks share, let through by a gate.

    Source: Berges et al. 2024 (arXiv:2412.09764).
    """

    name: Literal["memory-plus"] = "memory-plus"  # type: ignore[assignment]
    query_norm: Literal["batch", "layer"] = "layer"
    """As of product keys."""

    def usual_blocks(self, blocks: int) -> tuple[int, ...]:
        """Three, spread around the middle, as in the paper; of a small model fewer."""
        return tuple(sorted({max(1, round(blocks * quarter / 4)) for quarter in (1, 2, 3)}))
