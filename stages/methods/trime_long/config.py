"""Settings of TRIME with long memory. Free of torch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from stages.errors import UsageError
from stages.methods.config import Batches, EvaluationDefaults
from stages.methods.in_batch_config import InBatchConfig
from stages.models.config import BackboneConfig

CARRIED = 2
"""Consecutive segments where a backbone carries state: the one that is read and the one before (appendix E)."""


class TrimeLongConfig(InBatchConfig):
    """The memory is the earlier positions of the same segment, and goes on into the segments before."""

    evaluation: ClassVar[EvaluationDefaults] = EvaluationDefaults(("trime-long",), trained_with_memory=True)

    method: Literal["trime-long"] = "trime-long"
    consecutive: Annotated[int, Field(gt=0)] | None = None
    """m, consecutive segments that share a memory; None: as many as leave an update `ENOUGH_DOCUMENTS`, two at the
    least. A backbone that carries state reads one of them at a time, those before are constant; None: 2."""
    scope: Literal["stream", "document"] = "document"
    """Whether positions of earlier segments count that belong to another document."""

    def sized(self, model: BackboneConfig, batches: Batches) -> Self:
        share = max(1, batches.segments // batches.processes)
        legal = [m for m in range(1, share + 1) if share % m == 0]
        consecutive = self.consecutive or (CARRIED if model.carries_state else _longest(batches, share, legal))
        if not model.carries_state and consecutive not in legal:
            raise UsageError(
                f"memory.consecutive: a process has {share} segments of a forward batch, which {consecutive} does "
                f"not divide; use {min(legal, key=lambda m: abs(m - consecutive))}, or another --batch-tokens."
            )
        return self.with_key(model).model_copy(update={"consecutive": consecutive})


def _longest(batches: Batches, share: int, legal: list[int]) -> int:
    """The longest runs that leave an update enough documents, of the lengths that divide what a process has."""
    runs = {batches.processes * share // m: m for m in legal if m > 1 or share == 1}
    return runs[batches.enough(runs, same=1)]
