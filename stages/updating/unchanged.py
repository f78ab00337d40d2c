"""Rows of a changed datastore whose keys are those of the datastore before, and the rows whose keys are new."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import PREVIOUS
from stages.errors import ArtifactError
from stages.lineage.forgetting import documents_meant
from stages.lineage.rows import DatastoreRows
from stages.lineage.runs import KeptRows
from stages.updating.changed_rows import seen_behind
from stages.updating.config import UpdateConfig


@dataclass(frozen=True)
class UnchangedKeys:
    """Rows that stay with the keys that they had; rows that are encoded again stay, but with other keys.

    `kept`: rows that stay, in K ranges. `reread` int64 [K]: rows at the start of each range that are encoded again.

    >>> keys = UnchangedKeys(KeptRows(np.array([[0, 3], [5, 9]])), np.array([0, 2]))
    >>> keys.rows, keys.contains(np.array([2, 4, 5, 6, 7])).tolist()
    (5, [True, False, False, False, True])
    >>> keys.before(np.array([2, 7, 8])).tolist(), keys.are_new(np.arange(8)).tolist()
    ([2, 5, 6], [False, False, False, True, True, False, False, True])
    """

    kept: KeptRows
    reread: np.ndarray

    @property
    def rows(self) -> int:
        """How many keys stay as they are."""
        return self._unchanged.rows

    def contains(self, rows: np.ndarray) -> np.ndarray:
        """Which rows of the datastore before stay with their key, bool of their shape."""
        return self._unchanged.contains(rows)

    def before(self, rows: np.ndarray) -> np.ndarray:
        """New numbers of old rows that stay, int64 of their shape."""
        return self.kept.before(rows)

    def are_new(self, rows: np.ndarray) -> np.ndarray:
        """Which rows of the changed datastore have new keys, bool of their shape."""
        starts = self.kept.new_starts
        range_ = np.searchsorted(starts, rows, side="right") - 1
        return (range_ == len(self.reread)) | (rows - starts[range_] < np.append(self.reread, 0)[range_])

    def shards_of_new(self, rows: int, rows_per_shard: int) -> list[int]:
        """Numbers of the shards, of a datastore with `rows` rows, that hold new keys; they rise.

        >>> UnchangedKeys(KeptRows(np.array([[0, 3], [5, 9]])), np.array([0, 2])).shards_of_new(9, 2)
        [1, 2, 3, 4]
        """
        firsts = self.kept.new_starts
        stops = np.append(firsts[:-1] + self.reread, rows)
        pieces = zip(firsts.tolist(), stops.tolist(), strict=True)
        return sorted({n for a, b in pieces if a < b for n in range(a // rows_per_shard, -(-b // rows_per_shard))})

    @cached_property
    def _unchanged(self) -> KeptRows:
        """The old rows that stay with their keys; a range may be empty."""
        return KeptRows(np.stack([self.kept.ranges[:, 0] + self.reread, self.kept.ranges[:, 1]], axis=1))


def unchanged_keys(datastore: Artifact) -> UnchangedKeys:
    """The rows of a changed datastore that have the keys of the datastore before.

    Raises: ArtifactError if the one before is gone, or does not have those rows.
    """
    before = DatastoreRows(datastore.input(PREVIOUS))
    forgotten = documents_meant(datastore.config["forget"], (), len(before.doc_offsets) - 1)
    kept = KeptRows.of_documents(before.doc_offsets, forgotten)
    reread = np.zeros(len(kept.ranges), np.int64)
    if datastore.metrics["encoded_again"]:
        reread = seen_behind(before.runs, kept, UpdateConfig(**datastore.config).windows)
    metrics = datastore.metrics
    if (kept.rows + metrics["added"], int(reread.sum())) != (metrics["rows"], metrics["encoded_again"]):
        raise ArtifactError(
            f"{datastore.reference} does not have the rows that stayed of {before.datastore.reference}."
        )
    return UnchangedKeys(kept, reread)
