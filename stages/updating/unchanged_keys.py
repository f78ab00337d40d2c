"""The rows of a changed datastore whose keys are those of the previous datastore."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import PREVIOUS
from stages.errors import ArtifactError
from stages.lineage.rows import DatastoreRows
from stages.lineage.runs import KeptRows
from stages.updating.change import resolve_documents, rows_to_reencode
from stages.updating.config import UpdateConfig


@dataclass(frozen=True)
class UnchangedKeys:
    """Rows that stay with unchanged keys. Rows that are encoded again stay too, but with new keys.

    `kept_rows`: rows that stay, in K ranges. `reread` int64 [K]: rows at the start of each range that
    are encoded again.

    >>> keys = UnchangedKeys(KeptRows(np.array([[0, 3], [5, 9]])), np.array([0, 2]))
    >>> keys.rows, keys.contains(np.array([2, 4, 5, 6, 7])).tolist()
    (5, [True, False, False, False, True])
    >>> keys.before(np.array([2, 7, 8])).tolist(), keys.are_new(np.arange(8)).tolist()
    ([2, 5, 6], [False, False, False, True, True, False, False, True])
    """

    kept_rows: KeptRows
    reread: np.ndarray

    @property
    def rows(self) -> int:
        """Number of unchanged keys."""
        return self._unchanged.rows

    def contains(self, rows: np.ndarray) -> np.ndarray:
        """Whether each given row of the previous datastore stays with its key, bool of the same
        shape.
        """
        return self._unchanged.contains(rows)

    def before(self, rows: np.ndarray) -> np.ndarray:
        """New numbers of old rows that stay, int64 of the same shape."""
        return self.kept_rows.before(rows)

    def are_new(self, rows: np.ndarray) -> np.ndarray:
        """Whether each given row of the changed datastore has a new key, bool of the same shape."""
        starts = self.kept_rows.new_starts
        range_index = np.searchsorted(starts, rows, side="right") - 1

        # Rows behind the last range were added. For them, a range without reread rows is appended.
        is_added = range_index == len(self.reread)
        reread_of_range = np.append(self.reread, 0)
        offset = rows - starts[range_index]
        is_reread = offset < reread_of_range[range_index]
        return is_added | is_reread

    def shards_of_new(self, rows: int, rows_per_shard: int) -> list[int]:
        """Numbers of the shards that hold new keys, sorted, for a datastore with `rows` rows.

        >>> UnchangedKeys(KeptRows(np.array([[0, 3], [5, 9]])), np.array([0, 2])).shards_of_new(9, 2)
        [1, 2, 3, 4]
        """
        # New keys are at the start of each range that stays, and in the added rows at the end.
        starts = self.kept_rows.new_starts
        stops = np.append(starts[:-1] + self.reread, rows)

        shards: set[int] = set()
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            if start == stop:
                continue
            first_shard = start // rows_per_shard
            last_shard = (stop - 1) // rows_per_shard
            shards.update(range(first_shard, last_shard + 1))
        return sorted(shards)

    @cached_property
    def _unchanged(self) -> KeptRows:
        """The old rows that stay with their keys; a range may be empty."""
        starts, stops = self.kept_rows.ranges.T
        return KeptRows(np.stack([starts + self.reread, stops], axis=1))


def unchanged_keys(datastore: Artifact) -> UnchangedKeys:
    """The rows of a changed datastore whose keys are those of the previous datastore.

    Raises: ArtifactError if the previous datastore is gone, or lacks these rows.
    """
    metrics = datastore.metrics
    before = DatastoreRows(datastore.input(PREVIOUS))
    offsets = before.doc_offsets
    forgotten = resolve_documents(datastore.config["forget"], (), len(offsets) - 1)
    kept_rows = KeptRows.of_documents(offsets, forgotten)

    reread = np.zeros(len(kept_rows.ranges), np.int64)
    if metrics["encoded_again"]:
        config = UpdateConfig(**datastore.config)
        reread = rows_to_reencode(before.runs, kept_rows, config.windows)

    # Both numbers must be those that the changed datastore has of itself.
    same_rows = kept_rows.rows + metrics["added"] == metrics["rows"]
    same_reread = int(reread.sum()) == metrics["encoded_again"]
    if not (same_rows and same_reread):
        raise ArtifactError(
            f"{datastore.reference} does not have the rows that stayed of {before.datastore.reference}."
        )
    return UnchangedKeys(kept_rows, reread)
