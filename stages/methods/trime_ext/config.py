"""Settings of TRIME with external memory. Free of torch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from stages.errors import UsageError
from stages.methods.config import Batches, EvaluationDefaults, Share
from stages.methods.in_batch_config import InBatchConfig
from stages.models.config import BackboneConfig

OF_PAIRS = {"local_dropout": 1.0, "k": 8, "temperature": 10.0, "warmup": 0.1}
"""Settings for translation that are left open: those of the authors' code, which never reads the own sentence."""


class TrimeExtConfig(InBatchConfig):
    """The memory is every other segment of the batch; batches hold segments that are alike."""

    takes: ClassVar[tuple[str, ...]] = ("tokens", "batches")
    padded: ClassVar[bool] = True
    evaluation: ClassVar[EvaluationDefaults] = EvaluationDefaults(
        ("trime",), own_datastore=("trime-ext",), trained_with_memory=True
    )

    method: Literal["trime-ext"] = "trime-ext"
    local_dropout: Share = 0.9
    """p: probability that a group goes without the local part of memory."""
    k: Annotated[int, Field(ge=0)] | None = None
    """Best visible positions that a position reads, and gradients flow into; 0: all. None: all, of pairs 8."""
    groups: Annotated[int, Field(gt=0)] | None = None
    """Equal groups that a forward batch is cut into; a segment reads the others of its group alone. 1: of all
    processes; of more, each process has whole ones. None: as few as leave an update `ENOUGH_DOCUMENTS`."""

    def sized(self, model: BackboneConfig, batches: Batches) -> Self:
        batch, processes = batches.segments, batches.processes
        if model.reads.source:
            return self._of_pairs(model, processes)
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

    def _of_pairs(self, model: BackboneConfig, processes: int) -> Self:
        """Sentences of a batch differ in length and number, so a batch is one group, of one process."""
        if self.groups not in (None, 1):
            raise UsageError("memory.groups: a batch of pairs is one group; leave it out.")
        if processes > 1:
            raise UsageError("method trime-ext learns pairs in one process: leave torchrun out.")
        left_open = {name: value for name, value in OF_PAIRS.items() if name not in self.model_fields_set}
        return self.with_key(model).model_copy(update={"groups": 1, **left_open})


def _divides(groups: int, batch: int, processes: int) -> bool:
    return batch % groups == 0 and (groups == 1 or groups % processes == 0)


def _shared_by(processes: int) -> str:
    return "" if processes == 1 else f", shared by {processes} processes,"
