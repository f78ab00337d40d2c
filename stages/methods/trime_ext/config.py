"""Settings of TRIME with external memory. Free of torch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from stages.errors import UsageError
from stages.methods.config import Batches, EvaluationDefaults, Share
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
    """p: probability that a group goes without the local part of memory."""
    groups: Annotated[int, Field(gt=0)] | None = None
    """Equal groups that a forward batch is cut into; a segment reads the others of its group alone. 1: of all
    processes; of more, each process has whole ones. None: as few as leave an update `ENOUGH_DOCUMENTS`."""

    def sized(self, model: BackboneConfig, batches: Batches) -> Self:
        batch, processes = batches.segments, batches.processes
        if batch < 2:
            raise UsageError(
                "method trime-ext reads the other segments of a forward batch, but there is one alone; "
                "raise --batch-tokens, or lower --segment-length."
            )
        legal = [groups for groups in range(1, batch // 2 + 1) if _divides(groups, batch, processes)]
        groups = self.groups or batches.enough(legal, batches.same_document or 0)
        if groups not in legal:
            raise UsageError(
                f"memory.groups: a forward batch of {batch} segments{_shared_by(processes)} cannot be cut into "
                f"{groups} equal groups of two or more; use {min(legal, key=lambda g: abs(g - groups))}, "
                "or another --batch-tokens."
            )
        return self.with_key(model).model_copy(update={"groups": groups})


def _divides(groups: int, batch: int, processes: int) -> bool:
    return batch % groups == 0 and (groups == 1 or groups % processes == 0)


def _shared_by(processes: int) -> str:
    return "" if processes == 1 else f", shared by {processes} processes,"
