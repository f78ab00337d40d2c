"""Settings of TRIME with external memory. Free of torch."""

from typing import ClassVar, Literal, Self

from stages.errors import UsageError
from stages.methods.config import EvaluationDefaults, Share
from stages.methods.in_batch_config import InBatchConfig
from stages.models.config import BackboneConfig


class TrimeExtConfig(InBatchConfig):
    """The memory is every other segment of the batch; batches hold segments that are alike."""

    takes: ClassVar[tuple[str, ...]] = ("tokens", "batches")
    evaluation: ClassVar[EvaluationDefaults] = EvaluationDefaults(
        ("trime",), own_datastore=("trime-ext",), trained_with_memory=True
    )

    method: Literal["trime-ext"] = "trime-ext"
    local_dropout: Share = 0.9
    """p: probability that a forward batch goes without the local part of memory."""

    def sized(self, model: BackboneConfig, batch: int, processes: int) -> Self:
        if batch < 2:
            raise UsageError(
                "method trime-ext reads the other segments of a forward batch, but there is one alone; "
                "raise --batch-tokens, or lower --segment-length."
            )
        return self.with_key(model)
