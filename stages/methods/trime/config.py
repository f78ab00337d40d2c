"""Settings of TRIME with local memory. Free of torch."""

from typing import ClassVar, Literal, Self

from stages.methods.config import Batches, EvaluationDefaults
from stages.methods.in_batch_config import InBatchConfig
from stages.models.config import BackboneConfig


class TrimeConfig(InBatchConfig):
    """The memory is the earlier positions of the same segment."""

    evaluation: ClassVar[EvaluationDefaults] = EvaluationDefaults(("trime",), trained_with_memory=True)

    method: Literal["trime"] = "trime"

    def sized(self, model: BackboneConfig, batches: Batches) -> Self:
        return self.with_key(model)
