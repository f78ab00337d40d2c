"""Which segments the forward batches of a run read, and how many a batch holds."""

from collections.abc import Iterable

import numpy as np

from stages.errors import DataError
from stages.methods.config import ENOUGH_DOCUMENTS
from stages.methods.method import BatchLayout, Method
from stages.methods.segments import Segments, aligned_order, shuffled_order
from stages.reporting import Reporter
from stages.training.config import TrainConfig

UPDATES_LOOKED_AT = 8
"""The first ones, of which documents are counted before training."""
NEARLY_RANDOM = 0.75
"""Share of the documents that random segments would have; above it a batch counts as random."""


def batch_size(config: TrainConfig, segments: Segments, ranks: int, layout: BatchLayout, reporter: Reporter) -> int:
    """Segments of a forward batch over all ranks: as many as asked for, if the split has them and ranks can share them.

    Raises: DataError if they cannot share any.
    """
    wanted, together = config.batch_segments, layout.rows_together
    size = min(wanted, segments.count) // (ranks * together) * ranks * together
    if size == 0:
        share = f"shared by {ranks} processes" if together == 1 else f"made of {ranks} times {together} of them"
        raise DataError(f"A batch of {min(wanted, segments.count)} segments cannot be {share}.")
    if size < wanted:
        reporter.warning(
            f"the training split has {segments.count} segments of {config.segment_length} tokens; "
            f"a batch is {size} segments instead of {wanted}"
        )
    return size


class SegmentOrder:
    """The segments of each forward batch of a run, counted from its start: they depend on its number and the seed."""

    def __init__(self, segments: Segments, method: Method, layout: BatchLayout, size: int, seed: int) -> None:
        """`size`: segments of a batch, over all ranks."""
        self._segments, self._method, self._streams = segments, method, layout.streams
        self._size, self._seed = size, seed
        self._epoch: tuple[int, np.ndarray] | None = None
        """The latest that was asked for, and its segments, int64 [batches, size]."""

    @property
    def batches_per_epoch(self) -> int:
        return self._segments.count // self._size

    def begins_epoch(self, number: int) -> bool:
        """Whether a batch is the first of an epoch."""
        return number % self.batches_per_epoch == 0

    def of_batch(self, number: int) -> np.ndarray:
        """The segments of a batch, of all ranks, int64 [size]."""
        epoch, row = divmod(number, self.batches_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = epoch, self._of_epoch(epoch)
        segments: np.ndarray = self._epoch[1][row]
        return segments

    def share(self, number: int, rank: int, ranks: int) -> np.ndarray:
        """Those of them that one rank reads."""
        return np.array_split(self.of_batch(number), ranks)[rank]

    def documents_in(self, numbers: Iterable[int]) -> int:
        """How many documents some batches, of all ranks, read a part of."""
        return len(self._segments.documents_in(np.concatenate([self.of_batch(number) for number in numbers])))

    def few_documents(self, accumulate: int) -> str | None:
        """Warning where updates read fewer documents than are enough and than random segments would; None: nothing.

        Args:
            accumulate: forward batches of an update.
        """
        if not self._method.grouped_by:
            return None
        count = min(UPDATES_LOOKED_AT * accumulate, self.batches_per_epoch)
        orders = self._of_epoch(0)[:count], shuffled_order(self._segments.count, self._size, self._seed, 0)[:count]
        found, random = (self._mean_documents(order, accumulate) for order in orders)
        if round(found) >= ENOUGH_DOCUMENTS or found > NEARLY_RANDOM * random:
            return None
        return (
            f"documents an update: {found:.0f} on average, {random:.0f} if its segments were random, so it learns less "
            f"from them. {self._method.grouped_by} says how segments are grouped; a larger --batch-tokens or "
            "--accumulate has more groups"
        )

    def _mean_documents(self, order: np.ndarray, accumulate: int) -> float:
        """Documents of an update, by the batches of an order [batches, size]."""
        updates = np.array_split(order, max(1, len(order) // accumulate))
        return float(np.mean([len(self._segments.documents_in(update.flatten())) for update in updates]))

    def _of_epoch(self, epoch: int) -> np.ndarray:
        if self._streams:
            return aligned_order(self._segments.count, self._size)
        return self._method.order(self._segments.count, self._size, self._seed, epoch)
