"""Settings of sparse memory finetuning. Free of torch."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stages.errors import UsageError
from stages.methods.config import Batches, WithoutNeighbors
from stages.models.config import BackboneConfig

Positive = Annotated[int, Field(gt=0)]


class SparseMemoryConfig(WithoutNeighbors):
    """Slots of a model with product keys learn, those that a batch uses more than the text before did.

    Source: Lin et al. 2025 (arXiv:2510.15103), section 3.
    """

    padded: ClassVar[bool] = True
    reads_background: ClassVar[bool] = True

    method: Literal["sparse-memory"] = "sparse-memory"
    slots: Positive = 500
    """Slots that an update changes, t."""
    background: Positive = 100
    """Batches of the text that the model was trained on, |B| (in the paper 1,000)."""

    @property
    def continues(self) -> str | None:  # type: ignore[override]
        return "Method 'sparse-memory' changes slots of a trained model"

    def fitted(self, model: BackboneConfig) -> BackboneConfig:
        layer = getattr(model, "feed_forward", None)
        if layer is None or not hasattr(layer, "sub_keys"):
            raise UsageError(
                "Method 'sparse-memory' changes slots, and the model has none: begin from one that was trained with "
                "--set model.feed_forward.name=product-keys or memory-plus."
            )
        return model

    def sized(self, model: BackboneConfig, batches: Batches) -> "SparseMemoryConfig":
        return self
